// The sum that every host transport uses, so that its bits do not depend on the transport.
#pragma once

#include <cstdint>
#include <span>

#include "zero/base/dtype.h"

namespace zero::comm {

// out[i] = sum over sources of source[i], in the order that communicator.h promises: fp32 sums in
// source order inside groups of `group` sources, each partial sum rounded to the dtype, then over
// the groups in order, rounded once more. A sum starts from its first value. int64 is summed modulo
// 2^64. `out` may be one of the sources. All CPU variants give equal bits, NaN payloads excepted.
void ordered_sum(std::span<const void* const> sources, int group, void* out, std::int64_t count,
                 DType dtype);
// The same with groups of any sizes: group i ends before source ends[i], the last one at the last
// source.
void ordered_sum(std::span<const void* const> sources, std::span<const int> ends, void* out,
                 std::int64_t count, DType dtype);

}  // namespace zero::comm
