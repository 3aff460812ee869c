// Slices of a vector for the ranks of a group in all_reduce.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zero::comm {

struct Slice {
  std::int64_t first = 0, count = 0;
};

// Equal slices that start at multiples of 64 elements; the last slices may be short or empty.
constexpr Slice slice_of(std::int64_t count, int parts, int index) {
  const std::int64_t even = (count + parts - 1) / parts;
  const std::int64_t step = (even + 63) / 64 * 64;
  const std::int64_t first = std::min(count, step * index);
  return {first, std::min(count - first, step)};
}

}  // namespace zero::comm
