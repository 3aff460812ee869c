// Sum of squares, independent of order and partition: every square of an fp32 value is exact in
// fp64, is cut to a fixed grid of 2^-160, and is added in integers to limbs of 40 bits. So any
// stage, world size and chunking gives bitwise identical results (after the reproducible sums of
// Demmel and Nguyen, 2013). Squares below the grid (|g| < 2^-80) count as zero.
#pragma once

#include <cstdint>

#include "optim/square_sum.h"
#include "zero/base/dtype.h"

namespace zero::optim {

// Adds the squares of `count` gradients to this rank's sum; norm_of() returns the root.
void accumulate_norm(const void* gradient, DType dtype, std::int64_t count, NormSum& sum);

// accumulated = round(accumulated + addend), element by element, in the dtype of `accumulated`.
void accumulate_gradient(void* accumulated, DType dtype, const void* addend, DType addend_dtype,
                         std::int64_t count);

// to[i] = round(from[i]).
void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count);

}  // namespace zero::optim
