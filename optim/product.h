// A matrix product whose bits do not depend on how it is computed.
#pragma once

#include <cstdint>

namespace zero::optim {

// out = scale * a b + add_scale * add, row-major: a[.., depth], b[depth, cols], or [cols, depth]
// where it is transposed; add[.., cols] may be null. out overlaps none of them. Every element is
// the sum over the depth in order, one fused multiplication and addition after the other, whatever
// the rows, the threads and the vectors.
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
