// Copies of a GPU rank's state to host memory, for a save that is written behind the steps: on a
// stream of their own, behind everything that the compute stream had been given when they began.
// Streams that will change a flat unit's state wait for its copies, and the host for none. Owned by
// the engine; the program's thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "zero/runtime/runtime_core.h"

namespace zero::detail {

class DeviceCopies {
 public:
  DeviceCopies(RuntimeCore& runtime, std::size_t flat_units)
      : runtime_(runtime),
        stream_(runtime.device().create_stream(Device::Role::copies)),
        begun_(runtime.compute().create_event()) {
    for (std::size_t f = 0; f < flat_units; ++f) ended_.push_back(stream_->create_event());
  }

  void begin() {
    runtime_.compute().record(*begun_);
    stream_->wait(*begun_);
  }
  // To pinned memory.
  void copy(void* to, const void* from, std::int64_t bytes) {
    stream_->enqueue([=, this](Stream stream) { runtime_.device().copy(to, from, bytes, stream); });
  }
  // Calls it when all that was queued so far is there, on a thread of the device; never after a
  // failure of the device.
  void call(std::function<void()> work) {
    stream_->enqueue([this, work = std::move(work)](Stream stream) mutable {
      runtime_.device().call(std::move(work), stream);
    });
  }
  // A flat unit's copies have been queued.
  void end_of(int flat_unit) { stream_->record(*ended_[flat_unit]); }

  // What the stream is given from now on comes behind them; -1: behind those of all.
  void precede(int flat_unit, ExecutionStream& stream) {
    for (int f = 0; f < std::ssize(ended_); ++f)
      if (flat_unit < 0 || flat_unit == f) stream.wait(*ended_[f]);
  }
  // Waits for all; throws what the device has failed of.
  void synchronize() { stream_->synchronize(); }

 private:
  RuntimeCore& runtime_;
  std::unique_ptr<ExecutionStream> stream_;
  std::unique_ptr<Event> begun_;
  std::vector<std::unique_ptr<Event>> ended_;  // by flat unit
};

}  // namespace zero::detail
