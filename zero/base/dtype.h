// Element types of tensors, and the roundings between them. Rounding is to nearest even, with
// integers, so that all CPUs, threads and devices give bitwise identical results (hardware bf16
// conversion flushes denormals on some CPUs).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zero {

// int64 is for votes and counters, not for parameters. uint8 is for frozen parameters, whose bytes
// the engine keeps unchanged, and for activations.
enum class DType : std::uint8_t { fp32, bf16, fp16, int64, uint8 };

struct bf16 {
  std::uint16_t bits = 0;
};

struct fp16 {
  std::uint16_t bits = 0;
};

// Maps a C++ type to its DType. A program may add specializations for further types.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> : std::integral_constant<DType, DType::fp32> {};
template <>
struct dtype_of<bf16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct dtype_of<fp16> : std::integral_constant<DType, DType::fp16> {};
template <>
struct dtype_of<std::int64_t> : std::integral_constant<DType, DType::int64> {};
template <>
struct dtype_of<std::uint8_t> : std::integral_constant<DType, DType::uint8> {};

// Bytes per element.
constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::fp32 ? 4 : dtype == DType::int64 ? 8 : dtype == DType::uint8 ? 1 : 2;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

// Calls body.template operator()<T>() with the C++ type of a floating dtype.
template <class Body>
constexpr auto with_float_type(DType dtype, const Body& body) {
  if (dtype == DType::bf16) return body.template operator()<bf16>();
  if (dtype == DType::fp16) return body.template operator()<fp16>();
  return body.template operator()<float>();
}

// Branch-free, so that loops vectorize. Always inlined, because a caller may be compiled for newer
// instructions than the callee.
[[gnu::always_inline]] constexpr float to_float(float value) {
  return value;
}

[[gnu::always_inline]] constexpr float to_float(bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

[[gnu::always_inline]] constexpr float to_float(fp16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  // A denormal lacks the leading 1, worth 2^-14 there.
  const std::uint32_t exponent = magnitude < 0x400u ? 113u << 23 : 112u << 23;
  const std::uint32_t excess = magnitude < 0x400u ? 113u << 23 : 0u;
  const float finite =
      std::bit_cast<float>((magnitude << 13) + exponent) - std::bit_cast<float>(excess);
  const std::uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  const std::uint32_t sign = std::uint32_t{value.bits} << 16 & 0x80000000u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(finite) | special | sign);
}

template <class T>
constexpr T from_float(float value);

template <>
[[gnu::always_inline]] constexpr float from_float<float>(float value) {
  return value;
}

template <>
[[gnu::always_inline]] constexpr bf16 from_float<bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

template <>
[[gnu::always_inline]] constexpr fp16 from_float<fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  const std::uint32_t normal =
      (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (std::uint32_t{112} << 23)) >> 13;
  // Adding 0.5 aligns the mantissa to the denormal grid 2^-24 and rounds to nearest even.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
  std::uint32_t result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return {static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u))};
}

}  // namespace zero
