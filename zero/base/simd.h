// The vector instructions that the kernels of CPUs use. Every level gives the same bits (the
// payload of a NaN aside); the level is chosen once per process: the best that the CPU has, or
// ZERO_SIMD.
#pragma once

#include <cstdint>

namespace zero {

// Each includes those before it: avx2 with FMA and F16C; avx512 is F, BW, DQ and VL.
enum class SimdLevel : std::uint8_t { scalar, avx2, avx512 };

const char* name_of(SimdLevel level);

// Built in and supported by this CPU.
bool supports(SimdLevel level);

// What a value of ZERO_SIMD means; null or empty is the best level. Throws ConfigError for an
// unknown name and for a level that this CPU or build lacks.
SimdLevel choose_simd_level(const char* requested);

// The level in use, for any thread to ask. Throws as choose_simd_level does.
SimdLevel simd_level();

}  // namespace zero
