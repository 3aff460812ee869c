// The sum that every host transport uses, so that its bits do not depend on the transport.
#pragma once

#include <cstdint>
#include <span>

#include "comm/reduce_groups.h"
#include "zero/base/dtype.h"
#include "zero/base/simd.h"

namespace zero::comm {

// out[i] = sum over sources of source[i], in the order that communicator.h promises: fp32 sums in
// source order inside the innermost groups of sources, each partial sum rounded to the dtype, then
// over the groups in order, level by level, rounded once more at the end. A sum starts from its
// first value. int64 is summed modulo 2^64. `out` may be one of the sources. All levels give equal
// bits, NaN payloads excepted; one that is named must be one that this CPU has.
void ordered_sum(std::span<const void* const> sources, const ReduceGroups& groups, void* out,
                 std::int64_t count, DType dtype, SimdLevel level = simd_level());
// The same with groups of any sizes: at ending[i] levels a group ends with source i. What ends with
// the last source need not be said.
void ordered_sum(std::span<const void* const> sources, std::span<const std::uint8_t> ending,
                 void* out, std::int64_t count, DType dtype, SimdLevel level = simd_level());

}  // namespace zero::comm
