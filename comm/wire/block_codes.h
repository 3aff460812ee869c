// Arithmetic of the block formats of codec.h, as functions of values. CPU and GPU kernels share
// them, and therefore give bitwise identical results.
//
// An element x of a block is encoded as x / scale * (largest code), rounded to nearest even, and a
// code decodes as scale * (code / largest code). Quotients are products with reciprocals: those of
// 127, 7 and 448, rounded to fp32, give exactly 1 for the largest code, so that the maximum of a
// block is exact. No finite values of a block overflow.
#pragma once

#include <bit>
#include <cstdint>

#include "comm/wire/codec.h"

namespace zero::comm::wire {

// Smallest magnitude, as bits, of infinities and NaN.
inline constexpr std::uint32_t infinity_bits = 0x7f800000u;
inline constexpr float not_a_number = std::bit_cast<float>(0x7fc00000u);

// Factors: x * first * second is rounded to a code. There are two, because the reciprocal of a
// small maximum would overflow.
struct Scaling {
  float first, second;
};

[[gnu::always_inline]] constexpr Scaling scaling_to(float largest_code, float maximum) {
  if (maximum == 0) return {1, 0};
  const float first = maximum < 0x1p-64f ? 0x1p64f : 1.0f;
  return {first, largest_code / (maximum * first)};
}

// The low bits are the integer in two's complement, rounded to nearest even.
[[gnu::always_inline]] constexpr std::uint32_t integer_bits(float value) {
  return std::bit_cast<std::uint32_t>(value + 0x1.8p23f);
}

// Returns the E4M3 code (OCP 8-bit floating point: four bits of exponent with the bias 7, three of
// mantissa, no infinity) of a value of up to 448 in magnitude.
[[gnu::always_inline]] constexpr std::uint32_t e4m3_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u) - (120u << 23)) >> 20;
  // Adding 2^14 aligns the mantissa to the denormal grid 2^-9 and rounds to nearest even.
  const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(aligned) - 0x46800000u;
  return (magnitude < 0x3c800000u ? denormal : normal) | (bits >> 24 & 0x80u);
}

[[gnu::always_inline]] constexpr float e4m3_value(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  // A denormal lacks the leading 1, so 2^-6, the value of that bit at this exponent, is subtracted.
  const std::uint32_t exponent = magnitude < 8 ? 121u << 23 : 120u << 23;
  const float excess = magnitude < 8 ? 0x1p-6f : 0.0f;
  const float value = std::bit_cast<float>((magnitude << 20) + exponent) - excess;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (code & 0x80u) << 24);
}

// Formats whose scale is the maximum of the block, in fp32; NaN if the block has a value that is
// not finite.
template <int largest_code>
struct MaximumScale {
  using Scale = float;
  static constexpr float reciprocal = 1.0f / largest_code;
  [[gnu::always_inline]] static constexpr float scale_of(std::uint32_t maximum_bits) {
    return maximum_bits < infinity_bits ? std::bit_cast<float>(maximum_bits) : not_a_number;
  }
  [[gnu::always_inline]] static constexpr float value_of(float scale) { return scale; }
  [[gnu::always_inline]] static constexpr Scaling scaling(float scale) {
    return scaling_to(largest_code, scale);
  }
};

struct Int8 : MaximumScale<127> {
  static constexpr int bits = 8;
  [[gnu::always_inline]] static constexpr std::uint8_t code(float scaled) {
    return static_cast<std::uint8_t>(integer_bits(scaled));
  }
  [[gnu::always_inline]] static constexpr float unit(std::uint8_t code) {
    return static_cast<float>(static_cast<std::int8_t>(code)) * reciprocal;
  }
};

struct Int4 : MaximumScale<7> {
  static constexpr int bits = 4;
  [[gnu::always_inline]] static constexpr std::uint8_t code(float scaled) {
    return static_cast<std::uint8_t>(integer_bits(scaled) & 0xfu);
  }
  [[gnu::always_inline]] static constexpr float unit(std::uint8_t code) {
    return static_cast<float>((code ^ 8) - 8) * reciprocal;
  }
};

struct E4m3 {
  static constexpr int bits = 8;
  [[gnu::always_inline]] static constexpr std::uint8_t code(float scaled) {
    return static_cast<std::uint8_t>(e4m3_bits(scaled));
  }
};

struct Fp8 : MaximumScale<448>, E4m3 {
  [[gnu::always_inline]] static constexpr float unit(std::uint8_t code) {
    return e4m3_value(code) * reciprocal;
  }
};

// The scale is a power of two with the bias 127 (E8M0), the smallest by which no element exceeds
// 448; 255 is NaN. The reciprocal is exact.
struct Mxfp8 : E4m3 {
  using Scale = std::uint8_t;
  [[gnu::always_inline]] static constexpr std::uint8_t scale_of(std::uint32_t maximum_bits) {
    if (maximum_bits >= infinity_bits) return 255;
    // The exponent, plus 1 if the mantissa is above 1.75.
    const std::uint32_t exponent = (maximum_bits + 0x1fffffu) >> 23;
    return static_cast<std::uint8_t>(exponent > 8 ? exponent - 8 : 0);
  }
  [[gnu::always_inline]] static constexpr float value_of(std::uint8_t scale) {
    if (scale == 255) return not_a_number;
    return std::bit_cast<float>(scale == 0 ? 0x00400000u : std::uint32_t{scale} << 23);
  }
  [[gnu::always_inline]] static constexpr Scaling scaling(std::uint8_t scale) {
    return {1, std::bit_cast<float>((254u - scale) << 23)};
  }
  [[gnu::always_inline]] static constexpr float unit(std::uint8_t code) { return e4m3_value(code); }
};

// Calls body<F>() with the type of a block format.
template <class Body>
void with_block_format(Format format, const Body& body) {
  if (format == Format::int8) return body.template operator()<Int8>();
  if (format == Format::int4) return body.template operator()<Int4>();
  if (format == Format::fp8_e4m3) return body.template operator()<Fp8>();
  body.template operator()<Mxfp8>();
}

}  // namespace zero::comm::wire
