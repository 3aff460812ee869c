// NCCL and the parts of CUDA that the NCCL communicator uses, without NCCL's and CUDA's types:
// load_nccl() loads libnccl at run time, tests implement this class. Calls throw Error with NCCL's
// own text.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "comm/cuda/ordered_sum.h"
#include "zero/base/dtype.h"
#include "zero/base/stream.h"

namespace zero::comm::nccl {

using Handle = void*;  // a communicator of NCCL
using Id = std::array<std::int64_t, 16>;

inline constexpr int oldest_version = 21900;

enum class Progress { done, going_on, failed };

// The buffers of an operation: in place if both pointers are equal; one pointer is null in a mere
// send or receive.
struct Vector {
  const void* send = nullptr;
  void* recv = nullptr;
  std::int64_t count = 0;  // per rank if there are slices
  DType dtype{};
};

struct Target {
  Handle communicator = nullptr;
  Stream stream;
};

class Api {
 public:
  virtual ~Api() = default;

  // Every thread calls this once, before any function below.
  virtual void attach_thread() = 0;
  virtual int version() = 0;  // 22809 is 2.28.9
  virtual Id make_id() = 0;
  // Does not block: returns the handle at once, and progress() returns whether the handle may be
  // used.
  virtual Handle begin_join(const Id& id, int size, int rank) = 0;
  // Begins a blocking communicator that shares no resources with the parent. Call finish_split(),
  // which returns the communicator, once progress() of the parent is done.
  virtual void begin_split(Handle parent, int color, int key) = 0;
  virtual Handle finish_split(Handle parent) = 0;
  virtual Progress progress(Handle communicator) = 0;
  // This process's rank in the communicator, and the number of ranks.
  virtual std::pair<int, int> place(Handle communicator) = 0;
  virtual std::string last_error(Handle communicator) = 0;
  // Both may block; abort() ends operations that run on the device.
  virtual void destroy(Handle communicator) = 0;
  virtual void abort(Handle communicator) = 0;

  // Lets the communicator use memory in place, until deregister_buffer().
  virtual void* register_buffer(Handle communicator, void* data, std::int64_t bytes) = 0;
  virtual void deregister_buffer(Handle communicator, void* registration) = 0;

  virtual void group_start() = 0;
  virtual void group_end() = 0;
  // Launched into the stream that `to` names.
  virtual void send(const Vector& vector, int peer, const Target& to) = 0;
  virtual void receive(const Vector& vector, int peer, const Target& to) = 0;
  virtual void all_gather(const Vector& vector, const Target& to) = 0;
  virtual void reduce_scatter(const Vector& vector, const Target& to) = 0;
  virtual void reduce(const Vector& vector, int root, const Target& to) = 0;
  virtual void all_reduce(const Vector& vector, const Target& to) = 0;
  virtual void broadcast(const Vector& vector, int root, const Target& to) = 0;

  virtual void ordered_sum(const cuda::OrderedSum& sum, Stream stream) = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  // Complete when the stream has run all work launched into it so far. Any thread may query the
  // event.
  virtual std::unique_ptr<Event> mark(Stream stream) = 0;
};

// A group of NCCL's calls, which are launched together by end(). NCCL counts open groups by thread:
// a group that an exception left open would keep all later calls of the thread from being launched,
// so the destructor ends the group.
class CallGroup {
 public:
  explicit CallGroup(Api& api) : api_(api) { api_.group_start(); }
  ~CallGroup() {
    if (ended_) return;
    try {
      api_.group_end();
    } catch (const std::exception&) {
      // The error that left the group open is thrown already.
    }
  }
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  void end() {
    ended_ = true;
    api_.group_end();
  }

 private:
  Api& api_;
  bool ended_ = false;
};

// Returns the Api for the calling thread's current GPU. Throws TopologyError if this program or
// this machine has no NCCL, or a version that is too old.
std::shared_ptr<Api> load_nccl();

}  // namespace zero::comm::nccl
