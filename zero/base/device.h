// The home of an engine's buffers and the operations on them: the host itself, or one GPU. Made by
// the Runtime, on the rank's thread; outlives all streams, events and memory made here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  // Buffers are host memory, and stream operations are complete when the call returns (or when that
  // stream's worker has done the work).
  virtual bool is_host() const = 0;
  // Equal for two ranks if and only if both use the same GPU.
  virtual std::array<std::int64_t, 2> identity() const { return {}; }
  // CUDA's number of the device in this process; -1 if this is not a CUDA device.
  virtual int gpu() const { return -1; }
  // NUMA node that the device is attached to; -1 if unknown.
  virtual int numa_node() const { return -1; }

  // Bytes of the device's memory that nothing holds now; nothing if that is unknown.
  virtual std::optional<std::int64_t> free_bytes() const { return {}; }

  virtual std::unique_ptr<ExecutionStream> create_stream(Role role) = 0;
  // Creates a stream that runs work on one host thread, named for debuggers. Events order this
  // stream and the device's streams in both directions. After a failure events still complete, and
  // the device's streams continue.
  virtual std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name) = 0;
  // Wraps the program's own stream. Throws UsageError if the stream belongs to another device.
  virtual std::unique_ptr<ExecutionStream> borrow_stream(Stream stream) = 0;
  // Null if the device has no clock.
  virtual std::unique_ptr<StreamTimer> create_timer() { return nullptr; }

  // Zeroed; the whole size is taken now. Throws MemoryError with the figures.
  virtual Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) = 0;
  // Does the same; on the host Arena::take_pages() takes the memory.
  virtual Arena reserve_untouched(std::int64_t bytes, Arena::Sharing sharing,
                                  const std::string& name) {
    return reserve(bytes, sharing, name);
  }
  // Returns zeroed, page-locked host memory; copies to and from the device need no bounce buffer.
  virtual Arena reserve_pinned(std::int64_t bytes, const std::string& name) = 0;

  // Called by work of the stream, and ordered there. Buffers do not overlap; either may be pinned
  // host memory.
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  virtual void fill_zero(void* to, std::int64_t bytes, Stream stream) = 0;
  // Runs short host work in stream order, on any thread; the stream continues afterwards. The work
  // must neither throw, nor wait, nor call the device. Never called after a device failure.
  virtual void call(std::function<void()> work, Stream stream) = 0;

  // Wait rules for threads that wait for streams and events made here.
  DeviceWaits& waits() { return waits_; }

  // Names a range of the calling thread for profilers; end_range() takes begin_range()'s result.
  // Any thread.
  virtual std::uint64_t begin_range(const std::string&) { return 0; }
  virtual void end_range(std::uint64_t) {}

 private:
  DeviceWaits waits_;
};

// The host. One per process; streams run work at once.
Device& host_device();

}  // namespace zero
