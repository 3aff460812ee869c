// Normally distributed random numbers by the Box-Muller transform, in the bits of the C library's
// log, sin and cos at every SIMD level.
#pragma once

#include <cstdint>
#include <span>

#include "examples/gpt/model/random.h"

namespace gpt {

// Element `first` + i of the stream, times the deviation, into values[i]. Elements 2p and 2p + 1
// are the two values of pair p.
void fill_normals(const CounterRandom& random, std::int64_t first, double deviation,
                  std::span<float> values);

}  // namespace gpt
