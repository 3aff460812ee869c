// Observes torch's operations before they run, so that a parameter gets its memory just in time. No
// module has to be rewritten, and no module hook is needed.
//
// A callback of torch's profiler API inspects the storages of each operation's arguments: a data
// pointer made by observed_memory() contains the owner to call. Views and tensors saved by autograd
// share the parameter's storage, so are found as well. An autograd function of the program that has
// used a unit in forward uses the unit again in backward.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace zero::pytorch {

// The receiver of observed uses. Called on the thread that runs the operation: the program's own
// or, in backward on GPUs, one of autograd's, while the program's thread waits for it.
class StorageOwner {
 public:
  virtual void before_use(int unit) noexcept = 0;
  // A backward pass runs its first operation, on any tensors. Called only while an Observation
  // exists.
  virtual void pre_backward() noexcept = 0;
  // An operation is about to write to the storage.
  virtual void before_write(int unit, const c10::StorageImpl& storage) noexcept = 0;

 protected:
  ~StorageOwner() = default;
};

struct StorageUse {
  StorageOwner* owner = nullptr;
  int unit = 0;
  bool operator==(const StorageUse&) const = default;
};

// Returns a pointer to `address` that frees nothing. If `use` is given, operations on a storage
// with this pointer are reported to its owner; `use` must outlive the pointer.
at::DataPtr observed_memory(const void* address, const StorageUse* use, at::Device device);
// Returns null if the storage has any other pointer.
const StorageUse* use_of(c10::StorageImpl& storage);

// The observed operations of a thread, with owners.
class ObservedThread;

// While the object exists, operations are observed on each thread that called observe(), and on
// threads to which autograd passes the settings of such a thread. Any thread may destroy the object
// while no observed operation runs: each thread removes its callback itself, before the next
// operation.
class Observation {
 public:
  explicit Observation(StorageOwner& owner) : owner_(owner) {}
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  void observe();
  // Forgets the graphs of earlier passes: call when no backward over these follows.
  void forget_functions();

 private:
  StorageOwner& owner_;
  std::vector<std::weak_ptr<ObservedThread>> threads_;
};

// Returns the id of the backward pass that runs on this thread of the program, or whose nodes run
// on this thread of autograd, if any; of the outermost if an activation checkpoint runs a nested
// pass.
std::optional<int> running_backward();
// Whether a backward pass runs inside another.
bool in_nested_backward();

class LossOrigins;
// Notes of a thread of the program for its next backward. Threads of autograd see the notes of the
// thread whose backward they run.
struct ThreadNotes {
  const LossOrigins* scaled_last = nullptr;
};
ThreadNotes& thread_notes();

}  // namespace zero::pytorch
