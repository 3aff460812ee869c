// Common parts of the kernels' tests: the levels of this machine, numbers of every magnitude,
// equality of bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "zero/base/dtype.h"
#include "zero/base/simd.h"

namespace zero::optim::test {

inline constexpr DType floating[] = {DType::fp32, DType::bf16, DType::fp16};

// Returns the vector levels of this machine, which are compared with scalar.
inline std::vector<SimdLevel> vector_levels() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : {SimdLevel::avx2, SimdLevel::avx512})
    if (supports(level)) levels.push_back(level);
  return levels;
}

enum class Numbers {
  usual,  // gradients as in training
  wild,   // any finite bits: denormals, huge, both zeros
};

inline std::vector<float> random_floats(std::size_t count, Numbers numbers, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.01f);
  std::vector<float> values(count);
  for (float& value : values) {
    if (numbers == Numbers::usual) {
      value = normal(random);
      continue;
    }
    do value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    while (!std::isfinite(value));
    if (random() % 16 == 0) value = random() % 2 ? -0.0f : 0.0f;
    if (random() % 16 == 0)
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random() >> 10));
  }
  return values;
}

// Returns `count` elements of a dtype as bytes, from floats, by the scalar roundings of zero/base.
inline std::vector<unsigned char> encode(const std::vector<float>& values, DType dtype) {
  std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    unsigned char* at = bytes.data() + i * static_cast<std::size_t>(size_of(dtype));
    const bf16 brain = from_float<bf16>(values[i]);
    const fp16 half = from_float<fp16>(values[i]);
    if (dtype == DType::fp32) std::memcpy(at, &values[i], 4);
    if (dtype == DType::bf16) std::memcpy(at, &brain, 2);
    if (dtype == DType::fp16) std::memcpy(at, &half, 2);
  }
  return bytes;
}

// NaNs count as equal, because their payload follows the order of operands, and compilers may swap
// these.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

}  // namespace zero::optim::test
