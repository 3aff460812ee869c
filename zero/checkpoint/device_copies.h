// Copies of a GPU rank's state to host memory, for a save that is written while steps run: on a
// separate stream, after all work given to the compute stream before begin(). Streams that will
// change a flat unit's state wait for the unit's copies; the host never waits. Per save: begin(),
// then copy() and call(), with end_of() after the copies of each flat unit. Belongs to the engine;
// for the program's thread.
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
  // The destination is pinned memory.
  void copy(void* to, const void* from, std::int64_t bytes) {
    stream_->enqueue([=, this](Stream stream) { runtime_.device().copy(to, from, bytes, stream); });
  }
  // Calls `work` when all copies queued so far are complete, on a thread of the device; never after
  // a device failure.
  void call(std::function<void()> work) {
    stream_->enqueue([this, work = std::move(work)](Stream stream) mutable {
      runtime_.device().call(std::move(work), stream);
    });
  }
  // Call when a flat unit's copies have been queued.
  void end_of(int flat_unit) { stream_->record(*ended_[flat_unit]); }

  // Makes later work of the stream wait for the copies of a flat unit.
  void precede(int flat_unit, ExecutionStream& stream) { stream.wait(*ended_[flat_unit]); }
  // Waits for all copies; throws any device failure.
  void synchronize() { stream_->synchronize(); }

 private:
  RuntimeCore& runtime_;
  std::unique_ptr<ExecutionStream> stream_;
  std::unique_ptr<Event> begun_;
  std::vector<std::unique_ptr<Event>> ended_;  // per flat unit
};

}  // namespace zero::detail
