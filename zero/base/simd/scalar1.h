// A single float with the interface of a vector: the portable level, and the reference for all
// levels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::simd {

struct Scalar1 {
  static constexpr int lanes = 1;
  float value;

  Scalar1() = default;
  explicit Scalar1(float from) : value(from) {}
  using Bits = std::uint32_t;
  Bits bits() const { return std::bit_cast<Bits>(value); }

  static Scalar1 load(const float* from) { return Scalar1(*from); }
  static Scalar1 load(const bf16* from) { return Scalar1(to_float(*from)); }
  static Scalar1 load(const fp16* from) {
    // The hardware conversion makes a signaling NaN quiet, so this does too.
    const bool nan = (from->bits & 0x7fffu) > 0x7c00u;
    return Scalar1(to_float(fp16{static_cast<std::uint16_t>(from->bits | (nan ? 0x200u : 0u))}));
  }
  void store(float* to) const { *to = value; }
  void store(bf16* to) const { *to = from_float<bf16>(value); }
  void store(fp16* to) const { *to = from_float<fp16>(value); }

  template <class T>
  std::uint32_t differing(const Scalar1& other, const T*) const {
    return from_float<T>(value).bits != from_float<T>(other.value).bits ? 1 : 0;
  }
  std::uint32_t differing(const Scalar1& other, const float*) const {
    return bits() != other.bits() ? 1 : 0;
  }

  template <class T>
  void stream(T* to) const {
    store(to);
  }
  static void finish_streaming() {}

  friend Scalar1 operator+(Scalar1 a, Scalar1 b) { return Scalar1(a.value + b.value); }
  friend Scalar1 operator*(Scalar1 a, Scalar1 b) { return Scalar1(a.value * b.value); }
  friend Scalar1 operator/(Scalar1 a, Scalar1 b) { return Scalar1(a.value / b.value); }
  friend Scalar1 fma(Scalar1 a, Scalar1 b, Scalar1 c) {
    return Scalar1(std::fma(a.value, b.value, c.value));
  }
  friend Scalar1 sqrt(Scalar1 a) { return Scalar1(std::sqrt(a.value)); }
  friend Scalar1 larger(Scalar1 a, Scalar1 b) { return a.value > b.value ? a : b; }
  // Zero for zero.
  friend Scalar1 sign(Scalar1 a) {
    return Scalar1(
        static_cast<float>(static_cast<int>(a.value > 0) - static_cast<int>(a.value < 0)));
  }

  // Half of the lanes, if there are two or more; supports + - *.
  using Doubles = double;
  static Doubles doubles(double from) { return from; }
  template <int part>
  Doubles widen() const {
    return value;
  }

  struct Counts {
    std::uint64_t value = 0;
    void add_bits(Doubles from) { value += std::bit_cast<std::uint64_t>(from); }
    void decrement_where_greater(Doubles a, Doubles b) { value -= a > b ? 1 : 0; }
  };
};

}  // namespace zero::simd
