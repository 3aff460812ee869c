// Copies between a GPU and host memory beside it: how much, and for how long by the GPU's clock.
// Two points of a stream are timed around each; what has ended is read when the next one is queued,
// so nothing waits. One thread. Owned by who copies.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "zero/base/device.h"
#include "zero/base/enum_array.h"

namespace zero::detail {

enum class CopyDirection : std::uint8_t { to_host, to_device };
inline constexpr std::size_t copy_directions = 2;

const char* name_of(CopyDirection direction);

struct CopyTotal {
  std::int64_t bytes = 0;
  std::int64_t nanoseconds = 0;  // 0 where the device has no clock
};

class CopyMeter {
 public:
  explicit CopyMeter(Device& device) : device_(device) {}

  // In the order of the stream, whose work calls this; one stream for each direction.
  void copy(CopyDirection direction, void* to, const void* from, std::int64_t bytes, Stream stream);
  // Times are of copies that have ended.
  EnumArray<CopyDirection, CopyTotal, copy_directions> totals();

 private:
  struct Way {
    CopyTotal total;
    std::deque<std::unique_ptr<StreamTimer>> running;
  };

  void read_ended(Way& way);
  std::unique_ptr<StreamTimer> take_timer();

  Device& device_;
  EnumArray<CopyDirection, Way, copy_directions> ways_;
  std::vector<std::unique_ptr<StreamTimer>> idle_;
};

}  // namespace zero::detail
