// How a gradient enters a sum over micro steps: the first one replaces the sum, others are added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optim/gradient_norm.h"
#include "zero/base/dtype.h"

namespace zero::detail {

template <class Bytes>
struct Typed {
  Bytes* data;
  DType dtype;
};

// Rounds to the dtype of the sum.
inline void assign_or_add(const Typed<std::byte>& sum, const Typed<const std::byte>& addend,
                          std::int64_t count, bool first) {
  if (first)
    optim::cast(addend.data, addend.dtype, sum.data, sum.dtype, count);
  else
    optim::accumulate_gradient(sum.data, sum.dtype, addend.data, addend.dtype, count);
}

}  // namespace zero::detail
