// The time between two points of a stream, by its device's clock. Made by the device; used again
// once it has been read. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "zero/base/stream.h"

namespace zero {

class StreamTimer {
 public:
  virtual ~StreamTimer() = default;
  // In the order of the stream, whose work calls these.
  virtual void start(Stream stream) = 0;
  virtual void stop(Stream stream) = 0;
  // Nothing until the stream has come past both. Never blocks.
  virtual std::optional<std::int64_t> nanoseconds() const = 0;
};

}  // namespace zero
