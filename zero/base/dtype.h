// Element types of tensors, and the roundings between them.
// Rounding is to nearest even, by integers, so that every CPU, thread and device gives equal bits
// (hardware bf16 conversion flushes denormals on some CPUs).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace zero {

// int64 travels in votes and counters; no parameter has it.
enum class DType : std::uint8_t { fp32, bf16, fp16, int64 };

struct bf16 {
  std::uint16_t bits = 0;
};

struct fp16 {
  std::uint16_t bits = 0;
};

// Maps a C++ type to its DType. A program may add specializations for its own types.
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

// Bytes per element.
constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::fp32 ? 4 : dtype == DType::int64 ? 8 : 2;
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
  }
  return "?";
}

constexpr float to_float(float value) {
  return value;
}

constexpr float to_float(bf16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

constexpr float to_float(fp16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits} & 0x8000u;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>((sign << 16) | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>((sign << 16) | ((exponent + 112) << 23) | (mantissa << 13));
  // A denormal is mantissa * 2^-24, exact in fp32.
  const float magnitude = static_cast<float>(mantissa) * std::bit_cast<float>(0x33800000u);
  return std::bit_cast<float>((sign << 16) | std::bit_cast<std::uint32_t>(magnitude));
}

template <class T>
constexpr T from_float(float value);

template <>
constexpr float from_float<float>(float value) {
  return value;
}

template <>
constexpr bf16 from_float<bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
constexpr fp16 from_float<fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the mantissa to the denormal grid 2^-24 and rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {
        static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace zero
