// CUDA streams and events behind ExecutionStream and Event. Work is called at once, on the caller's
// thread, and launches into the stream; waits between streams are the device's. An event binds a
// wait to its latest record at the call, and one that was never recorded passes.
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

// What a stream can wait for that no stream of the GPU records: part of some events.
class Gate {
 public:
  virtual ~Gate() = default;
  // The stream goes on when the latest record has been reached.
  virtual void hold(cudaStream_t stream) const = 0;
};

// A new stream of the current device; high priority for communication. Threads that wait for it and
// its events keep to `waits`, which outlives them.
std::unique_ptr<ExecutionStream> create_stream(bool high_priority, DeviceWaits& waits);
// The program's stream; it is not destroyed.
std::unique_ptr<ExecutionStream> borrow_stream(cudaStream_t stream, DeviceWaits& waits);
// Whether the event's latest record has been reached.
bool reached(cudaEvent_t event);
// By a pair of events that keep the time.
std::unique_ptr<StreamTimer> create_timer();

}  // namespace zero::cuda
