// Measures the time between two points of a stream, by the device's clock. Made by the device. Call
// start(), stop(), then nanoseconds() until there is a result; then reusable. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "zero/base/stream.h"

namespace zero {

class StreamTimer {
 public:
  virtual ~StreamTimer() = default;
  // Called by work of the stream, and ordered there.
  virtual void start(Stream stream) = 0;
  virtual void stop(Stream stream) = 0;
  // Returns nothing until the stream has passed both points. Never blocks.
  virtual std::optional<std::int64_t> nanoseconds() const = 0;
};

}  // namespace zero
