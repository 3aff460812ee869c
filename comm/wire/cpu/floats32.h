// 32 floats in vectors of one SIMD level, since blocks have multiples of 32 elements. `Codes`
// implements the block formats of the level:
//
//   write<F>(scaled, to)     the codes of 32 scaled elements, as F::bits * 32 / 8 bytes
//   units(F, from, units)    the values of 32 codes in a block with a scale of 1
//   Maximum<T>               the largest magnitude of groups of 32 elements, as bits of a float
#pragma once

#include <cstdint>
#include <type_traits>

#include "comm/wire/block_codes.h"
#include "zero/base/dtype.h"

namespace zero::comm::wire {

template <class V, class Codes>
struct Floats32 {
  static constexpr int lanes = 32, count = lanes / V::lanes;
  V parts[count];

  template <class T>
  [[gnu::always_inline]] static Floats32 load(const T* from) {
    Floats32 result;
    for (int p = 0; p < count; ++p) result.parts[p] = V::load(from + p * V::lanes);
    return result;
  }
  template <class T>
  [[gnu::always_inline]] void store(T* to) const {
    for (int p = 0; p < count; ++p) parts[p].store(to + p * V::lanes);
  }

  // Applies op to the parts of vectors, floats or registers of floats.
  template <class Op, class... Vectors>
  [[gnu::always_inline]] static Floats32 combine(const Op& op, const Vectors&... vectors) {
    Floats32 result;
    for (int p = 0; p < count; ++p) result.parts[p].value = op(vectors.parts[p].value...);
    return result;
  }
  [[gnu::always_inline]] friend Floats32 operator+(const Floats32& a, const Floats32& b) {
    return combine([](auto x, auto y) { return x + y; }, a, b);
  }

  template <class F>
  [[gnu::always_inline]] void write_codes(const Scaling& scaling, std::uint8_t* to) const {
    const auto scaled = [&](auto value) { return value * scaling.first * scaling.second; };
    Codes::template write<F>(combine(scaled, *this).parts, to);
  }
  // Returns scale * (value of a code in units).
  template <class F>
  [[gnu::always_inline]] static Floats32 decode(const std::uint8_t* from, float scale) {
    Floats32 units;
    Codes::units(F{}, from, units.parts);
    return combine([&](auto unit) { return scale * unit; }, units);
  }

  template <class T>
  using Maximum = typename Codes::template Maximum<T>;
};

}  // namespace zero::comm::wire
