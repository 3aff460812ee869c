// The conversions of zero/base/dtype.h without branches, so that loops over them vectorize. Inlined
// everywhere, because a caller may be compiled for more instructions than the rest.
#pragma once

#include <bit>
#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::comm {

[[gnu::always_inline]] inline float widen(float value) {
  return value;
}

[[gnu::always_inline]] inline float widen(bf16 value) {
  return to_float(value);
}

[[gnu::always_inline]] inline float widen(fp16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  // The exponent is rebiased by a product, which also normalizes denormals.
  const float scaled =
      std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(std::uint32_t{239} << 23);
  const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  const std::uint32_t sign = std::uint32_t{value.bits} << 16 & 0x80000000u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

template <class T>
T narrow(float value);

template <>
[[gnu::always_inline]] inline float narrow<float>(float value) {
  return value;
}

template <>
[[gnu::always_inline]] inline bf16 narrow<bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

template <>
[[gnu::always_inline]] inline fp16 narrow<fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  const std::uint32_t normal =
      (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (std::uint32_t{112} << 23)) >> 13;
  // Adding 0.5 aligns the mantissa to the denormal grid and rounds to nearest even.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
  std::uint32_t result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return {static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u))};
}

}  // namespace zero::comm
