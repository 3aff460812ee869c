// Compares arrays computed by a GPU and by the host: bitwise identical, except for the payload and
// the sign of a NaN. An operation that produces a NaN gives 0xffc00000 on x86 and 0x7fffffff on
// NVIDIA's GPUs.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "zero/base/dtype.h"

namespace gpu {

inline bool same_elements(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b,
                          zero::DType dtype) {
  if (a.size() != b.size()) return false;
  const auto width = static_cast<std::size_t>(zero::size_of(dtype));
  const auto is_nan = [&](const unsigned char* element) {
    return zero::with_float_type(dtype, [&]<class T>() {
      T value;
      std::memcpy(&value, element, sizeof value);
      return std::isnan(zero::to_float(value));
    });
  };
  for (std::size_t i = 0; i < a.size(); i += width)
    if (std::memcmp(&a[i], &b[i], width) != 0 && !(is_nan(&a[i]) && is_nan(&b[i]))) return false;
  return true;
}

}  // namespace gpu
