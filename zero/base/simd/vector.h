// Floats in a register of a SIMD level of x86-64, with the interface of scalar1.h: arithmetic by
// the compiler's vector types, the rest by the level's instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "zero/base/dtype.h"

namespace zero::simd {

// Reads and writes registers of any type at any address.
template <class Register>
[[gnu::always_inline]] inline Register read(const void* from) {
  Register result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
template <class Register>
[[gnu::always_inline]] inline void write(void* to, Register value) {
  std::memcpy(to, &value, sizeof value);
}

template <class Level>
struct Vector {
  static constexpr int lanes = Level::lanes;
  using Floats = typename Level::Floats;
  using Doubles = typename Level::Doubles;
  using Words = typename Level::Words;
  using Bits = typename Level::Bits;
  Floats value;

  Vector() = default;
  explicit Vector(float from) : value(Level::all(from)) {}
  explicit Vector(Floats from) : value(from) {}
  Bits bits() const { return reinterpret_cast<Bits>(value); }
  static typename Level::Integers integers(Bits bits) {
    return reinterpret_cast<typename Level::Integers>(bits);
  }

  static Vector load(const float* from) { return Vector(read<Floats>(from)); }
  static Vector load(const bf16* from) {
    const auto wide = reinterpret_cast<Bits>(Level::widen(read<Words>(from)));
    return Vector(reinterpret_cast<Floats>(wide << 16));
  }
  static Vector load(const fp16* from) { return Vector(Level::from_fp16(read<Words>(from))); }

  Words narrow(const bf16*) const {
    const Bits near = bits() + rounding(), quiet = bits() | 0x400000u;
    return Level::high_words(Level::chosen(Level::nans(value), integers(quiet), integers(near)));
  }
  Words narrow(const fp16*) const { return Level::to_fp16(value); }
  // Returns what rounding to bf16 adds to the bits, to nearest even.
  Bits rounding() const { return (bits() >> 16 & 1u) + 0x7fffu; }
  void store(float* to) const { write(to, value); }
  template <class T>
  void store(T* to) const {
    write(to, narrow(to));
  }
  // Returns a bit per lane, set if the values differ in their bits once stored as T. The other
  // value is a NaN if this one is.
  template <class T>
  std::uint32_t differing(const Vector& other, const T* type) const {
    return Level::differing(narrow(type), other.narrow(type));
  }
  // Rounds both by what the other value's high half demands. This value's high half could demand
  // another sum, which has another result only for a value halfway between two of bf16: rare.
  [[gnu::always_inline]] std::uint32_t differing(const Vector& other, const bf16*) const {
    if (Level::any_or_halfway(Level::nans(other.value), integers(bits()))) [[unlikely]]
      return differing_rarely(*this, other);
    const Bits sum = other.rounding();
    return Level::differing_high(integers(bits() + sum), integers(other.bits() + sum));
  }
  [[gnu::noinline, gnu::cold]] static std::uint32_t differing_rarely(Vector a, Vector b) {
    return Level::differing(a.narrow(static_cast<const bf16*>(nullptr)),
                            b.narrow(static_cast<const bf16*>(nullptr)));
  }
  std::uint32_t differing(const Vector& other, const float*) const {
    return Level::differing(integers(bits()), integers(other.bits()));
  }
  // Non-temporal store, bypassing the caches; `to` is aligned to the vector.
  template <class T>
  void stream(T* to) const {
    Level::stream(to, narrow(to));
  }
  static void finish_streaming() { _mm_sfence(); }

  friend Vector operator+(Vector a, Vector b) { return Vector(a.value + b.value); }
  friend Vector operator*(Vector a, Vector b) { return Vector(a.value * b.value); }
  friend Vector operator/(Vector a, Vector b) { return Vector(a.value / b.value); }
  friend Vector fma(Vector a, Vector b, Vector c) {
    return Vector(Level::fma(a.value, b.value, c.value));
  }
  friend Vector sqrt(Vector a) { return Vector(Level::sqrt(a.value)); }
  friend Vector larger(Vector a, Vector b) { return Vector(a.value > b.value ? a.value : b.value); }
  friend Vector sign(Vector a) {
    const Floats zero{}, one = Level::all(1);
    return Vector((a.value > zero ? one : zero) - (a.value < zero ? one : zero));
  }

  static Doubles doubles(double from) { return Doubles{} + from; }
  template <int part>
  Doubles widen() const {
    return Level::template doubles<part>(value);
  }
  struct Counts {
    typename Level::Counts value{};  // modulo 2^64
    void add_bits(Doubles from) { value += reinterpret_cast<typename Level::Counts>(from); }
    void decrement_where_greater(Doubles a, Doubles b) {
      value += reinterpret_cast<typename Level::Counts>(a > b);
    }
  };
};

}  // namespace zero::simd
