// One element of the ordered sum that comm/reduce.h promises, for devices and their tests. A
// constexpr template: host code and, with --expt-relaxed-constexpr, device code.
#pragma once

#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::comm {

// `stride` elements lie between the sources; int64 is summed as it is, modulo 2^64.
template <class T>
constexpr T ordered_element(const T* first_source, std::int64_t stride, int sources, int group) {
  float total = 0;
  for (int begin = 0; begin < sources; begin += group) {
    const int end = begin + group < sources ? begin + group : sources;
    float partial = to_float(first_source[begin * stride]);
    for (int s = begin + 1; s < end; ++s) partial = partial + to_float(first_source[s * stride]);
    const float rounded = to_float(from_float<T>(partial));
    total = begin == 0 ? rounded : total + rounded;
  }
  return from_float<T>(total);
}

}  // namespace zero::comm
