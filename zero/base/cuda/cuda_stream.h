// CUDA streams and events as ExecutionStream and Event. Work is called at once, on the caller's
// thread, and launches into the stream; waits between streams happen on the device. A wait refers
// to the event's latest record at the call, and an event that was never recorded counts as
// complete.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "zero/base/device_waits.h"
#include "zero/base/stream.h"
#include "zero/base/stream_timer.h"

namespace zero::cuda {

inline cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// Part of events that no GPU stream records: lets a stream wait for such an event.
class Gate {
 public:
  virtual ~Gate() = default;
  // Blocks the stream until the latest record has been reached.
  virtual void hold(cudaStream_t stream) const = 0;
};

// Creates a stream of the current device; high priority for communication. Threads that wait for
// the stream or its events use the limit of `waits`, which must outlive all of these.
std::unique_ptr<ExecutionStream> create_stream(bool high_priority, DeviceWaits& waits);
// Wraps the program's stream, without ownership.
std::unique_ptr<ExecutionStream> borrow_stream(cudaStream_t stream, DeviceWaits& waits);
// Whether the event's latest record has been reached.
bool reached(cudaEvent_t event);
// Timer made of a pair of events with timestamps.
std::unique_ptr<StreamTimer> create_timer();

}  // namespace zero::cuda
