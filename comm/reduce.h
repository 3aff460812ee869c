// Sum shared by every host transport, so that the bits do not depend on the transport.
#pragma once

#include <cstdint>
#include <span>

#include "comm/reduce_groups.h"
#include "zero/base/dtype.h"
#include "zero/base/simd.h"

namespace zero::comm {

// out[i] = sum over sources of source[i], in the order that communicator.h defines: fp32 sums in
// source order inside the innermost groups of sources, each partial sum rounded to the dtype, then
// over the groups in order, level by level, rounded once more at the end. A sum starts from its
// first value. int64 is summed modulo 2^64. `out` may be a source. All SIMD levels give bitwise
// identical results, NaN payloads excepted; this CPU must have the given level.
void ordered_sum(std::span<const void* const> sources, const ReduceGroups& groups, void* out,
                 std::int64_t count, DType dtype, SimdLevel level = simd_level());
// Like the function above, with groups of any sizes: groups at ending[i] levels end with source i.
// The end of the last source is implied.
void ordered_sum(std::span<const void* const> sources, std::span<const std::uint8_t> ending,
                 void* out, std::int64_t count, DType dtype, SimdLevel level = simd_level());

}  // namespace zero::comm
