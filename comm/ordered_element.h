// One element of the ordered sum that comm/reduce.h promises, for devices and their tests. A
// constexpr template: host code and, with --expt-relaxed-constexpr, device code.
#pragma once

#include <cstdint>

#include "comm/reduce_groups.h"
#include "zero/base/dtype.h"

namespace zero::comm {

// `stride` elements lie between the sources; int64 is summed as it is, modulo 2^64.
template <class T>
constexpr T ordered_element(const T* first_source, std::int64_t stride, int sources,
                            const ReduceGroups& groups) {
  return from_float<T>(grouped_sum(
      groups, 0, sources, [&](int s) { return to_float(first_source[s * stride]); },
      [](float sum) { return to_float(from_float<T>(sum)); }));
}

}  // namespace zero::comm
