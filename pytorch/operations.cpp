#include "pytorch/operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string_view>

namespace zero::pytorch {

class ObservedThread {
 public:
  void add(StorageOwner& owner) {
    const std::lock_guard lock(mutex_);
    owners_.push_back(&owner);
    is_needed_ = true;
  }
  void remove(StorageOwner& owner) {
    const std::lock_guard lock(mutex_);
    std::erase(owners_, &owner);
    is_needed_ = !owners_.empty();
  }
  bool is_needed() const { return is_needed_; }
  void tell_of_backward() {
    const std::lock_guard lock(mutex_);
    for (StorageOwner* owner : owners_) owner->backward_begins();
  }

 private:
  std::mutex mutex_;
  std::vector<StorageOwner*> owners_;
  std::atomic<bool> is_needed_ = false;
};

namespace {

// The address of this function identifies data pointers made by observed_memory().
void free_nothing(void* /*use*/) {}

// The units that an operation uses: rarely more than one.
class Uses {
 public:
  void look_at(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const StorageUse* use =
        use_of(*tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    if (use == nullptr) return;
    for (int i = 0; i < count_; ++i)
      if (uses_[i] == *use) return;
    if (count_ < static_cast<int>(uses_.size())) uses_[count_++] = *use;
  }
  void look_at(const c10::IValue& value) {
    if (value.isTensor()) return look_at(value.toTensor());
    if (!value.isList()) return;
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) look_at(element.toTensor());
  }
  static void tell_of_writes(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    c10::StorageImpl& storage =
        *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    if (const StorageUse* use = use_of(storage)) use->owner->before_write(use->unit, storage);
  }
  static void tell_of_writes(const c10::IValue& value) {
    if (value.isTensor()) return tell_of_writes(value.toTensor());
    if (!value.isList()) return;
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) tell_of_writes(element.toTensor());
  }
  bool any() const { return count_ > 0; }
  void tell() const {
    for (int i = 0; i < count_; ++i) uses_[i].owner->before_use(uses_[i].unit);
  }

 private:
  std::array<StorageUse, 8> uses_;
  int count_ = 0;
};

thread_local int outermost_task = -1;
thread_local std::shared_ptr<ObservedThread> this_thread;  // null: no callback is set here
thread_local at::CallbackHandle callback;

// A checkpoint's nested backward has its own task; the first task since none was running is the
// outermost.
void note_task() {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) {
    outermost_task = -1;
  } else if (outermost_task == -1) {
    outermost_task = task;
    if (this_thread) this_thread->tell_of_backward();
  }
}

// Names decide, because reading arguments would make copies: operations that change the first
// argument end in "_", and overloads that write to a tensor given for the result
// (torch.add(a, b, out=c)), the last argument, end in "out".
bool writes_to_last(const char* overload) {
  return std::string_view(overload).ends_with("out");
}

bool writes_to_first(const char* name) {
  const std::string_view all(name);
  return all.ends_with('_') && !all.ends_with("__") && all != "aten::requires_grad_" &&
         all != "aten::detach_";
}

// x.set_(x), as called by torch.nn.utils.parametrize, gives x its own memory.
bool sets_to_itself(const char* name, c10::ArrayRef<const c10::IValue> inputs) {
  if (std::string_view(name) != "aten::set_" || inputs.size() < 2 || !inputs[1].isTensor())
    return false;
  const at::Tensor own = inputs[0].toTensor(), source = inputs[1].toTensor();
  return own.is_alias_of(source) && own.storage_offset() == source.storage_offset() &&
         own.sizes() == source.sizes() && own.strides() == source.strides();
}

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  if (this_thread && !this_thread->is_needed()) {
    at::removeCallback(callback);
    this_thread.reset();
    return nullptr;
  }
  note_task();
  Uses uses;
  for (const c10::IValue& input : operation.inputs()) uses.look_at(input);
  if (!uses.any()) return nullptr;
  if (writes_to_first(operation.name()) && !sets_to_itself(operation.name(), operation.inputs()))
    Uses::tell_of_writes(operation.inputs()[0]);
  if (writes_to_last(operation.overload_name())) Uses::tell_of_writes(operation.inputs().back());
  uses.tell();
  return nullptr;
}

}  // namespace

at::DataPtr observed_memory(const void* address, const StorageUse* use, at::Device device) {
  void* memory = const_cast<void*>(address);
  if (use == nullptr) return {memory, device};
  return {memory, const_cast<StorageUse*>(use), &free_nothing, device};
}

const StorageUse* use_of(c10::StorageImpl& storage) {
  return storage._mutable_data_ptr_no_checks().cast_context<StorageUse>(&free_nothing);
}

void Observation::observe() {
  const auto is_this = [](const auto& thread) { return thread.lock() == this_thread; };
  if (this_thread && std::ranges::any_of(threads_, is_this)) return;
  if (!this_thread) {
    callback = at::addThreadLocalCallback(at::RecordFunctionCallback(&before_operation)
                                              .needsInputs(true)
                                              .scopes({at::RecordScope::FUNCTION}));
    this_thread = std::make_shared<ObservedThread>();
  }
  this_thread->add(owner_);
  std::erase_if(threads_, [](const auto& thread) { return thread.expired(); });
  threads_.push_back(this_thread);
}

Observation::~Observation() {
  for (const auto& thread : threads_)
    if (const auto alive = thread.lock()) alive->remove(owner_);
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
