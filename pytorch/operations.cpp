#include "pytorch/operations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

namespace zero::pytorch {

// The backward pass that a thread of the program runs. Autograd runs nodes on that thread or, for a
// GPU's, on threads that all threads of the program share.
class RunningBackward {
 public:
  // Call before an operation with the id of its task, -1 if none runs. Returns whether a pass
  // begins. `of_program`: the operation runs on the program's thread, where no task means that none
  // is left, also after an error.
  bool note(int task, bool of_program) {
    const std::lock_guard lock(mutex_);
    if (task == -1) {
      if (of_program) outermost_ = -1;
      return false;
    }
    // A checkpoint's nested backward has its own task; the first task since none was running is the
    // outermost.
    if (task == outermost_ || (outermost_ != -1 && !*has_ended_)) return false;
    outermost_ = task;
    watch_end();
    return true;
  }
  // -1 if none runs.
  int outermost() const {
    const std::lock_guard lock(mutex_);
    return outermost_;
  }

 private:
  // Autograd calls the callback at the end of the task, and destroys it also after an error.
  void watch_end() {
    struct Watch {
      std::shared_ptr<std::atomic<bool>> has_ended;
      ~Watch() { *has_ended = true; }
    };
    has_ended_ = std::make_shared<std::atomic<bool>>(false);
    const auto watch = std::make_shared<Watch>(has_ended_);
    torch::autograd::Engine::get_default_engine().queue_callback(
        [watch] { *watch->has_ended = true; });
  }

  mutable std::mutex mutex_;
  int outermost_ = -1;
  std::shared_ptr<std::atomic<bool>> has_ended_;
};

// Uses of units by autograd functions of the program (torch.autograd.Function). In backward such a
// function may read what it has saved by its address, which is no operation.
class FunctionUses {
 public:
  // The thread that ran the function's forward, and autograd's number of the function there.
  using Node = std::pair<std::uint64_t, std::int64_t>;

  void add(Node node, const StorageUse& use) {
    const std::lock_guard lock(mutex_);
    uses_.emplace(node, use);
  }
  void tell_of(Node node) {
    std::vector<StorageUse> uses;
    {
      const std::lock_guard lock(mutex_);
      const auto [first, last] = uses_.equal_range(node);
      for (auto at = first; at != last; ++at) uses.push_back(at->second);
    }
    for (const StorageUse& use : uses) use.owner->before_use(use.unit);
  }
  void forget(const StorageOwner& owner) {
    const std::lock_guard lock(mutex_);
    std::erase_if(uses_, [&](const auto& use) { return use.second.owner == &owner; });
  }

 private:
  std::mutex mutex_;
  std::multimap<Node, StorageUse> uses_;
};

// A thread of the program with observed operations. These may run on threads of autograd.
class ObservedThread {
 public:
  void add(StorageOwner& owner) {
    const std::lock_guard lock(mutex_);
    owners_.push_back(&owner);
    is_needed_ = true;
  }
  void remove(StorageOwner& owner) {
    functions.forget(owner);
    const std::lock_guard lock(mutex_);
    std::erase(owners_, &owner);
    is_needed_ = !owners_.empty();
  }
  bool is_needed() const { return is_needed_; }
  void tell_of_backward() {
    const std::lock_guard lock(mutex_);
    for (StorageOwner* owner : owners_) owner->pre_backward();
  }

  RunningBackward backward;
  FunctionUses functions;
  ThreadNotes notes;

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
  void add_to(FunctionUses& functions, FunctionUses::Node node) const {
    for (int i = 0; i < count_; ++i) functions.add(node, uses_[i]);
  }

 private:
  std::array<StorageUse, 8> uses_;
  int count_ = 0;
};

using Callback = std::unique_ptr<at::ObserverContext>(const at::RecordFunction&);
Callback before_operation, before_node;

// The callbacks of this thread of the program; none: 0.
struct OwnCallback {
  at::CallbackHandle handle = 0, of_nodes = 0;
  std::shared_ptr<ObservedThread> thread;
  ~OwnCallback();
};
thread_local OwnCallback own;

// The observed threads by the handles of their callbacks.
struct ObservedThreads {
  std::mutex mutex;
  std::map<at::CallbackHandle, std::weak_ptr<ObservedThread>> of_handle;
};
ObservedThreads& observed_threads() {
  static auto* const all = new ObservedThreads;  // threads may end after static objects
  return *all;
}

// Returns the callback of this thread, or of the thread whose backward runs here: autograd gives
// its threads the callbacks of the thread that called backward. None: 0.
at::CallbackHandle handle_of(Callback& callback) {
  for (const auto& entry : at::get_record_function_tls_().sorted_tls_callbacks_)
    if (entry.callback_.start() == &callback) return entry.handle_;
  return 0;
}

void forget_own() {
  ObservedThreads& all = observed_threads();
  const std::lock_guard lock(all.mutex);
  all.of_handle.erase(std::exchange(own.handle, 0));
  own.thread.reset();
}

OwnCallback::~OwnCallback() {
  if (handle != 0) forget_own();
}

// Returns the thread of the program that the current operation belongs to; null if not observed.
std::shared_ptr<ObservedThread> program_thread() {
  const at::CallbackHandle handle = handle_of(before_operation);
  if (handle == own.handle) return own.thread;
  ObservedThreads& all = observed_threads();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of_handle.find(handle);
  return found == all.of_handle.end() ? nullptr : found->second.lock();
}

// For threads without observed operations.
thread_local RunningBackward unobserved_backward;
thread_local ThreadNotes unobserved_notes;

// Returns the outermost task, or -1.
int note_task(const std::shared_ptr<ObservedThread>& thread) {
  RunningBackward& backward = thread ? thread->backward : unobserved_backward;
  const bool of_program = !thread || thread == own.thread;
  const bool begins = backward.note(torch::autograd::get_current_graph_task_id(), of_program);
  if (begins && thread) thread->tell_of_backward();
  return backward.outermost();
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

// Operations of torch have names with "::", functions of the program are named like their class.
bool is_function(const at::RecordFunction& operation) {
  return std::string_view(operation.name()).find("::") == std::string_view::npos;
}

// From the first such function on, since torch makes a text for each node that is observed.
void observe_nodes(const std::shared_ptr<ObservedThread>& thread) {
  if (handle_of(before_node) != 0) return;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&before_node).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  if (thread == own.thread) own.of_nodes = handle;
}

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  const std::shared_ptr<ObservedThread> thread = program_thread();
  if (!thread) return nullptr;
  if (!thread->is_needed()) {
    if (thread == own.thread) {
      at::removeCallback(own.handle);
      if (own.of_nodes != 0) at::removeCallback(std::exchange(own.of_nodes, 0));
      forget_own();
    }
    return nullptr;
  }
  note_task(thread);
  Uses uses;
  for (const c10::IValue& input : operation.inputs()) uses.look_at(input);
  if (!uses.any()) return nullptr;
  if (writes_to_first(operation.name()) && !sets_to_itself(operation.name(), operation.inputs()))
    Uses::tell_of_writes(operation.inputs()[0]);
  if (writes_to_last(operation.overload_name())) Uses::tell_of_writes(operation.inputs().back());
  uses.tell();
  if (is_function(operation) && at::GradMode::is_enabled()) {
    uses.add_to(thread->functions, {at::RecordFunction::currentThreadId(), operation.seqNr()});
    observe_nodes(thread);
  }
  return nullptr;
}

std::unique_ptr<at::ObserverContext> before_node(const at::RecordFunction& node) {
  if (const auto thread = program_thread(); thread && thread->is_needed())
    thread->functions.tell_of({node.forwardThreadId(), node.seqNr()});
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
  std::shared_ptr<ObservedThread> thread = program_thread();
  const auto is_this = [&](const auto& other) { return other.lock() == thread; };
  if (thread && std::ranges::any_of(threads_, is_this)) return;
  if (!thread) {
    if (own.handle != 0) forget_own();  // the program has changed the thread's callbacks
    thread = std::make_shared<ObservedThread>();
    own.handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&before_operation)
                                                .needsInputs(true)
                                                .scopes({at::RecordScope::FUNCTION}));
    own.thread = thread;
    const std::lock_guard lock(observed_threads().mutex);
    observed_threads().of_handle[own.handle] = thread;
  }
  thread->add(owner_);
  std::erase_if(threads_, [](const auto& other) { return other.expired(); });
  threads_.push_back(thread);
}

Observation::~Observation() {
  for (const auto& thread : threads_)
    if (const auto alive = thread.lock()) alive->remove(owner_);
}

void Observation::forget_functions() {
  for (const auto& thread : threads_)
    if (const auto alive = thread.lock()) alive->functions.forget(owner_);
}

std::optional<int> running_backward() {
  const int outermost = note_task(program_thread());
  return outermost == -1 ? std::nullopt : std::optional(outermost);
}

bool in_nested_backward() {
  return torch::autograd::get_current_graph_task_id() != note_task(program_thread());
}

ThreadNotes& thread_notes() {
  const std::shared_ptr<ObservedThread> thread = program_thread();
  return thread ? thread->notes : unobserved_notes;
}

}  // namespace zero::pytorch
