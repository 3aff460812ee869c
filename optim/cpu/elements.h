// Ranges of elements that the threads of a rank process, and addresses of elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::optim::cpu {

// Elements that a thread processes at a time, few enough to stay in cache.
inline constexpr std::int64_t grain_elements = 1 << 14;

struct Elements {
  std::int64_t begin, end;

  std::int64_t count() const { return end - begin; }
};

inline const std::byte* element(const void* array, DType dtype, std::int64_t at) {
  return static_cast<const std::byte*>(array) + at * size_of(dtype);
}

inline std::byte* element(void* array, DType dtype, std::int64_t at) {
  return static_cast<std::byte*>(array) + at * size_of(dtype);
}

}  // namespace zero::optim::cpu
