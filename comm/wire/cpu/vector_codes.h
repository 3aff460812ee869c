// Common code of the vector levels.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "comm/wire/cpu/floats32.h"
#include "zero/base/simd/vector.h"

namespace zero::comm::wire {

template <class F>
inline constexpr bool is_integer = std::is_same_v<F, Int8> || std::is_same_v<F, Int4>;

// Largest magnitude of groups of 32 elements, as bits of a float, in registers like those of
// Floats32. Magnitudes of all types have the order of their bits.
template <class Level, class T>
struct VectorMaximum {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
  using Register = std::conditional_t<sizeof(T) == 4, typename Level::Bits, typename Level::Halves>;
  static constexpr int count = 32 * sizeof(T) / sizeof(Register);
  Register largest[count] = {};

  [[gnu::always_inline]] void include(const T* from) {
    constexpr Bits all_but_sign = static_cast<Bits>(-1) / 2;
    for (int r = 0; r < count; ++r) {
      const auto elements = simd::read<Register>(from + r * sizeof(Register) / sizeof(T));
      raise(largest[r], elements & all_but_sign);
    }
  }
  [[gnu::always_inline]] std::uint32_t bits() const {
    Register all = largest[0];
    for (int r = 1; r < count; ++r) raise(all, largest[r]);
    return last(halved(all));
  }

 private:
  template <class R>
  [[gnu::always_inline]] static void raise(R& most, R value) {
    most = value > most ? value : most;
  }
  // Returns the maximum of both halves, repeatedly, down to a register of 16 bytes.
  template <class R>
  [[gnu::always_inline]] static __m128i halved(R all) {
    if constexpr (sizeof all == sizeof(__m128i)) {
      return reinterpret_cast<__m128i>(all);
    } else {
      typedef Bits Half [[gnu::vector_size(sizeof all / 2)]];
      Half halves[2];
      std::memcpy(halves, &all, sizeof all);
      raise(halves[0], halves[1]);
      return halved(halves[0]);
    }
  }
  [[gnu::always_inline]] static std::uint32_t last(__m128i rest) {
    if constexpr (sizeof(T) == 4) {
      rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0x4e));
      rest = _mm_max_epu32(rest, _mm_shuffle_epi32(rest, 0xb1));
      return static_cast<std::uint32_t>(_mm_cvtsi128_si32(rest));
    } else {
      const __m128i inverted = _mm_minpos_epu16(_mm_xor_si128(rest, _mm_set1_epi16(-1)));
      const auto value = static_cast<std::uint16_t>(~_mm_cvtsi128_si32(inverted));
      return std::bit_cast<std::uint32_t>(to_float(T{value}));
    }
  }
};

}  // namespace zero::comm::wire
