// Matrix product with bitwise reproducible results.
#pragma once

#include <cstdint>

namespace zero::optim {

// out = scale * a b + add_scale * add, row-major: a[.., depth], b[depth, cols], or [cols, depth] if
// transposed; add[.., cols] may be null. out overlaps no input. Every element is summed over the
// depth in order, by a chain of fused multiply-adds, for any number of rows, threads and vector
// lanes.
struct Product {
  const float* a;
  const float* b;
  float* out;
  std::int64_t cols, depth;
  bool transposed;
  float scale;
  const float* add;
  float add_scale;
};

}  // namespace zero::optim
