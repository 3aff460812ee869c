// Elements by dtype and by parameter group; as device kernels find them.
#pragma once

#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::optim {

// The range that holds an element.
template <class Range>
constexpr int range_of(const Range* ranges, int count, std::int64_t element) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (element < ranges[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Calls body(T{}) with the type of a floating dtype.
template <class Body>
constexpr void with_float_type(DType dtype, const Body& body) {
  if (dtype == DType::bf16) return body(bf16{});
  if (dtype == DType::fp16) return body(fp16{});
  body(float{});
}

}  // namespace zero::optim
