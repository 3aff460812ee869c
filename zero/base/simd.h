// Vector instruction levels of the CPU kernels. All levels give bitwise identical results (except
// for the payload of a NaN). The level is chosen once per process: the best that the CPU has, or
// ZERO_SIMD.
#pragma once

#include <cstdint>

namespace zero {

// Each level includes all previous levels: avx2 with FMA and F16C; avx512 is F, BW, DQ and VL.
enum class SimdLevel : std::uint8_t { scalar, avx2, avx512 };

const char* name_of(SimdLevel level);

// Built in and supported by this CPU.
bool supports(SimdLevel level);

// Parses a value of ZERO_SIMD; null or empty is the best level. Throws ConfigError for an unknown
// name and for a level that this CPU or build lacks.
SimdLevel choose_simd_level(const char* requested);

// Returns the level in use. Any thread. Throws as choose_simd_level does.
SimdLevel simd_level();

}  // namespace zero
