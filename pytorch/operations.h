// Sees torch's operations before they run, so that a parameter can get its memory just in time: no
// module has to be rewritten, and no hook on a module is needed.
//
// A callback of torch's profiler API looks at the storages of each operation's arguments, whose
// data pointers say whom to call. Views and the tensors that autograd saves share their parameter's
// storage, so they are found as well.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <thread>

namespace zero::pytorch {

// Who hears that an operation is about to use one of its storages. Called on the thread that runs
// the operation: the program's own, also in backward on CPUs.
class StorageOwner {
 public:
  virtual void before_use(int unit) noexcept = 0;
  // A backward pass runs its first operation, on whatever tensors; while an Observation lives.
  virtual void backward_begins() noexcept = 0;
  // Before an operation that writes to one.
  virtual void before_write(int unit, const c10::StorageImpl& storage) noexcept = 0;

 protected:
  ~StorageOwner() = default;
};

struct StorageUse {
  StorageOwner* owner = nullptr;
  int unit = 0;
  bool operator==(const StorageUse&) const = default;
};

// A pointer to `address` that frees nothing. If `use` is given, operations on a storage that has
// this pointer are reported to its owner; `use` outlives that.
at::DataPtr observed_memory(const void* address, const StorageUse* use, at::Device device);
// Null for a storage whose pointer is another.
const StorageUse* use_of(c10::StorageImpl& storage);

// While one lives, operations of the thread that made it are seen, also where autograd carries its
// settings to another thread. It ends on the thread that made it.
class Observation {
 public:
  explicit Observation(StorageOwner& owner);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  bool on_this_thread() const { return std::this_thread::get_id() == thread_; }

 private:
  StorageOwner& owner_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::uint64_t handle_;
};

// The backward pass that runs on this thread, if any: the outermost one, where a checkpoint runs
// another within it.
std::optional<int> running_backward();
// Whether a backward pass runs within another.
bool in_nested_backward();

}  // namespace zero::pytorch
