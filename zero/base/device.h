// Where an engine's buffers live and what moves bytes in them: the host itself, or one GPU. Made
// by the Runtime, on the thread of its rank; outlives the streams, events and memory that it made.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "zero/base/arena.h"
#include "zero/base/device_waits.h"
#include "zero/base/stream.h"
#include "zero/base/stream_timer.h"

namespace zero {

class Device {
 public:
  enum class Role { compute, communication, copies };

  virtual ~Device() = default;
  // "cpu", "cuda".
  virtual const char* kind() const = 0;
  // For the start-up line: the model of a GPU, with its number.
  virtual std::string describe() const { return kind(); }
  // Buffers are host memory, and what is asked of a stream has happened when the call returns (or
  // when that stream's worker has run it).
  virtual bool is_host() const = 0;
  // Equal for two ranks exactly where they use the same GPU.
  virtual std::array<std::int64_t, 2> identity() const { return {}; }
  // CUDA's number of the device in this process; -1 where it is none of CUDA's.
  virtual int gpu() const { return -1; }
  // To which the device is attached; -1 where the machine does not say.
  virtual int numa_node() const { return -1; }

  virtual std::unique_ptr<ExecutionStream> create_stream(Role role) = 0;
  // Runs its work on one host thread, named for debuggers. Its events and those of create_stream()
  // order it and the device's streams, both ways. After a failure its events still complete, and
  // the device's streams go on.
  virtual std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name) = 0;
  // The program's own stream, as it is. Throws UsageError where it belongs to another device.
  virtual std::unique_ptr<ExecutionStream> borrow_stream(Stream stream) = 0;
  // Null where the device has no clock of its own.
  virtual std::unique_ptr<StreamTimer> create_timer() { return nullptr; }

  // Zeroed; its whole size is taken now. Throws MemoryError with the figures.
  virtual Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) = 0;
  // Host memory, zeroed, that copies to and from the device reach without a bounce.
  virtual Arena reserve_pinned(std::int64_t bytes, const std::string& name) = 0;

  // In the order of the stream, whose work calls these. Buffers do not overlap; either may be
  // pinned host memory.
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  virtual void fill_zero(void* to, std::int64_t bytes, Stream stream) = 0;
  // Short work of the host in the order of the stream, which goes on when it returns; on whatever
  // thread. It must neither throw nor wait nor call the device. Never called after a failure of the
  // device.
  virtual void call(std::function<void()> work, Stream stream) = 0;

  // To which threads that wait for the streams and events made here keep.
  DeviceWaits& waits() { return waits_; }

  // Names what the calling thread does, for profilers; begin returns what end takes. Any thread.
  virtual std::uint64_t begin_range(const std::string&) { return 0; }
  virtual void end_range(std::uint64_t) {}

 private:
  DeviceWaits waits_;
};

// The host. One for the process; its streams run work at once.
Device& host_device();

}  // namespace zero
