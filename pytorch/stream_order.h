// The order of work on the streams of a device. The engine's work is on one of torch's streams; the
// program may use units on other ones (torch.cuda.stream()).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

namespace zero::pytorch {

class StreamOrder {
 public:
  virtual ~StreamOrder() = default;
  // The current stream of the calling thread.
  virtual c10::Stream current() const = 0;
  // Work that is queued on `waiting` from now on waits for all work on `other` so far.
  virtual void wait(c10::Stream waiting, c10::Stream other) = 0;
};

// Returns torch's; null for a CPU, where kernels are done when their call returns.
std::unique_ptr<StreamOrder> torch_stream_order(at::Device device);

// Other streams than the engine's that use a unit: they wait for the unit's memory, and the engine
// waits for them before that memory has another use.
class SideStreams {
 public:
  explicit SideStreams(std::unique_ptr<StreamOrder> order) : order_(std::move(order)) {}
  // Call at the begin of a pass. The first begins on the engine's stream.
  void begin_pass() {
    if (order_ && !own_) own_ = order_->current();
  }
  // Call before a use. `users`: the streams that have used the memory since it was the unit's.
  void enter(std::vector<c10::Stream>& users);
  // Call before the memory has another use, and after a write.
  void leave(std::vector<c10::Stream>& users);

 private:
  std::unique_ptr<StreamOrder> order_;
  std::optional<c10::Stream> own_;
};

}  // namespace zero::pytorch
