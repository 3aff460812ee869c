#include "pytorch/operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace zero::pytorch {

namespace {

struct Use {
  StorageOwner* owner = nullptr;
  int unit = 0;
  bool operator==(const Use&) const = default;
};

// Ranks may be threads of one process, hence the lock. It is not held while an owner is called:
// that owner may wait for another rank, which may want to register.
struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Use> uses;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// The units that one operation uses: rarely more than one.
class Uses {
 public:
  void look_at(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto found =
        registry().uses.find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    if (found == registry().uses.end()) return;
    for (int i = 0; i < count_; ++i)
      if (uses_[i] == found->second) return;
    if (count_ < static_cast<int>(uses_.size())) uses_[count_++] = found->second;
  }
  void look_at(const c10::IValue& value) {
    if (value.isTensor()) return look_at(value.toTensor());
    if (!value.isList()) return;
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) look_at(element.toTensor());
  }
  void tell() const {
    for (int i = 0; i < count_; ++i) uses_[i].owner->before_use(uses_[i].unit);
  }

 private:
  std::array<Use, 8> uses_;
  int count_ = 0;
};

thread_local int outermost_task = -1;

// In a checkpoint the nested backward has a task of its own; the first one since none was seen is
// the outermost.
void note_task() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1)
    outermost_task = -1;
  else if (outermost_task == -1)
    outermost_task = task;
}

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  note_task();
  Uses uses;
  if (const auto inputs = operation.inputs(); !inputs.empty()) {
    const std::shared_lock lock(registry().mutex);
    for (const c10::IValue& input : inputs) uses.look_at(input);
  }
  uses.tell();
  return nullptr;
}

}  // namespace

void register_storage(const c10::StorageImpl* storage, StorageOwner& owner, int unit) {
  const std::unique_lock lock(registry().mutex);
  registry().uses[storage] = {&owner, unit};
}

void unregister_storages(const StorageOwner& owner) {
  const std::unique_lock lock(registry().mutex);
  std::erase_if(registry().uses, [&](const auto& entry) { return entry.second.owner == &owner; });
}

Observation::Observation()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&before_operation)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {}

Observation::~Observation() {
  at::removeCallback(handle_);
}

std::optional<int> running_backward() {
  note_task();
  return outermost_task == -1 ? std::nullopt : std::optional(outermost_task);
}

bool in_nested_backward() {
  note_task();
  return torch::autograd::get_current_graph_task_id() != outermost_task;
}

}  // namespace zero::pytorch
