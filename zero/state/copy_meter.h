// Makes copies between a GPU and host memory, and adds up bytes and times by the GPU's clock. A
// timer is started and stopped on the stream around each copy, and is read after the copy has
// ended, when another copy is queued, so that nothing waits. One thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "zero/base/device.h"
#include "zero/base/enum_array.h"

namespace zero::detail {

enum class CopyDirection : std::uint8_t { to_host, to_device };
inline constexpr std::size_t copy_directions = 2;

struct CopyTotal {
  std::int64_t bytes = 0;
  std::int64_t nanoseconds = 0;  // 0 if the device has no clock
};

class CopyMeter {
 public:
  explicit CopyMeter(Device& device) : device_(device) {}

  // Called by work of the stream; each direction has one stream.
  void copy(CopyDirection direction, void* to, const void* from, std::int64_t bytes,
            Stream stream) {
    Totals& own = directions_[direction];
    read_ended(own);
    std::unique_ptr<StreamTimer> timer = take_timer();
    if (timer) timer->start(stream);
    device_.copy(to, from, bytes, stream);
    own.total.bytes += bytes;
    if (!timer) return;
    timer->stop(stream);
    own.running.push_back(std::move(timer));
  }
  // Times include only copies that have ended.
  EnumArray<CopyDirection, CopyTotal, copy_directions> totals() {
    for (Totals& own : directions_) read_ended(own);
    return {directions_[0].total, directions_[1].total};
  }

 private:
  struct Totals {
    CopyTotal total;
    std::deque<std::unique_ptr<StreamTimer>> running;
  };

  void read_ended(Totals& own) {
    for (; !own.running.empty(); own.running.pop_front()) {
      const std::optional<std::int64_t> spent = own.running.front()->nanoseconds();
      if (!spent) return;
      own.total.nanoseconds += *spent;
      idle_.push_back(std::move(own.running.front()));
    }
  }

  std::unique_ptr<StreamTimer> take_timer() {
    if (idle_.empty()) return device_.create_timer();
    std::unique_ptr<StreamTimer> timer = std::move(idle_.back());
    idle_.pop_back();
    return timer;
  }

  Device& device_;
  EnumArray<CopyDirection, Totals, copy_directions> directions_;
  std::vector<std::unique_ptr<StreamTimer>> idle_;
};

}  // namespace zero::detail
