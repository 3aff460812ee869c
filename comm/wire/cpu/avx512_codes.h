// Codes in AVX-512 (F, BW, DQ, VL).
#pragma once

#include "comm/wire/cpu/vector_codes.h"
#include "zero/base/simd/avx512.h"

namespace zero::comm::wire {

struct Avx512Codes {
  using V = simd::Vector<simd::Avx512>;

  template <class F>
  [[gnu::always_inline]] static void write(const V* scaled, std::uint8_t* to) {
    const auto code = [](const V& value) {
      return is_integer<F> ? _mm512_cvtps_epi32(value.value) : e4m3(value.value);
    };
    const __m512i both = low_words(code(scaled[0]), code(scaled[1]));
    if constexpr (F::bits == 4) {
      const __m512i pairs = bitwise_choice(0xf, both, _mm512_srli_epi32(both, 12));
      simd::write(to, _mm512_cvtepi32_epi8(pairs));
    } else {
      const __m512i codes =
          is_integer<F> ? both : bitwise_choice(0x007f007f, both, _mm512_srli_epi16(both, 4));
      simd::write(to, _mm512_cvtepi16_epi8(codes));
    }
  }

  [[gnu::always_inline]] static void units(Int8, const std::uint8_t* from, V* units) {
    for (int p = 0; p < 2; ++p) {
      const __m512i codes = _mm512_cvtepi8_epi32(simd::read<__m128i>(from + 16 * p));
      units[p].value = _mm512_cvtepi32_ps(codes) * Int8::reciprocal;
    }
  }
  [[gnu::always_inline]] static void units(Int4, const std::uint8_t* from, V* units) {
    const __m512 table =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1) * Int4::reciprocal;
    for (int p = 0; p < 2; ++p) {
      const __m512i eight =
          _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * p)));
      // The low half has the first code of a byte, the upper half the second. The permutation reads
      // four bits of each.
      const __m512i codes = _mm512_or_si512(eight, _mm512_slli_epi64(eight, 28));
      units[p].value = _mm512_permutexvar_ps(codes, table);
    }
  }
  [[gnu::always_inline]] static void units(Fp8, const std::uint8_t* from, V* units) {
    e4m3_units(from, Fp8::reciprocal, units);
  }
  [[gnu::always_inline]] static void units(Mxfp8, const std::uint8_t* from, V* units) {
    e4m3_units(from, 1, units);
  }

  template <class T>
  using Maximum = VectorMaximum<simd::Avx512, T>;

 private:
  // The lower words of all elements.
  static __m512i low_words(__m512i a, __m512i b) {
    const __m512i counting =
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_permutex2var_epi16(a, _mm512_slli_epi16(counting, 1), b);
  }
  // Bits of a if the mask bit is 1, otherwise of b.
  static __m512i bitwise_choice(int mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), a, b, 0xca);
  }

  // E4M3 in the seven low bits, and the sign in bit 11. The element is rounded by adding 2^20 times
  // the element's power of two, at least 2^-6: the amount added to the mantissa of the sum is the
  // code, less eight for each power of two from 2^-6 on.
  static __m512i e4m3(__m512 value) {
    constexpr int larger_magnitude_of_both_with_sign_of_first = 3;
    const __m512 normal = _mm512_range_ps(value, _mm512_set1_ps(0x1p-6f),
                                          larger_magnitude_of_both_with_sign_of_first);
    const __m512i power = _mm512_and_si512(_mm512_castps_si512(normal),
                                           _mm512_set1_epi32(static_cast<int>(0xff800000u)));
    // The exponent of 2^-6 leaves 72 in the seven bits; adding 56 clears these.
    const __m512i addend = _mm512_add_epi32(power, _mm512_set1_epi32((20 << 23) + 56));
    const __m512i sum = _mm512_castps_si512(_mm512_add_ps(value, _mm512_castsi512_ps(addend)));
    return _mm512_add_epi32(_mm512_sub_epi32(sum, power), _mm512_srli_epi32(power, 20));
  }

  // E4M3 times a factor. A shifted code is an fp16 equal to 2^-8 of the code's value: fp16 has one
  // exponent bit more, and denormals stay denormals.
  [[gnu::always_inline]] static void e4m3_units(const std::uint8_t* from, float factor, V* units) {
    const __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(simd::read<__m256i>(from)), 7);
    const __m512i halves = _mm512_and_si512(wide, _mm512_set1_epi16(-0x4001));
    const float scale = 0x1p8f * factor;
    units[0].value = _mm512_cvtph_ps(_mm512_castsi512_si256(halves)) * scale;
    units[1].value = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)) * scale;
  }
};

using Avx512x32 = Floats32<Avx512Codes::V, Avx512Codes>;

}  // namespace zero::comm::wire
