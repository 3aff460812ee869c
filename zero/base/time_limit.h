// Time limits: converts seconds of options into clock units.
#pragma once

#include <chrono>
#include <cmath>

namespace zero {

// A hundred years: effectively unlimited, and still no overflow when added to a clock's
// nanoseconds.
inline constexpr std::chrono::milliseconds longest_time_limit = std::chrono::hours(24 * 36525);

// Longer limits, including infinity, become the longest.
inline std::chrono::milliseconds time_limit_of(double seconds) {
  const double milliseconds = seconds * 1000;
  if (!(milliseconds < static_cast<double>(longest_time_limit.count()))) return longest_time_limit;
  return std::chrono::milliseconds(std::llround(milliseconds));
}

}  // namespace zero
