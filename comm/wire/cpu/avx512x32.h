// 32 floats in AVX-512 (F, BW, DQ, VL); members as in portable32.h.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "comm/wire/block_codes.h"
#include "zero/base/dtype.h"

namespace zero::comm::wire {

struct Avx512x32 {
  static constexpr int lanes = 32, count = 2;
  __m512 parts[count];

  static Avx512x32 load(const float* from) {
    return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)};
  }
  [[gnu::always_inline]] static Avx512x32 load(const bf16* from) {
    return {load_half(from), load_half(from + 16)};
  }
  static Avx512x32 load(const fp16* from) { return {load_half(from), load_half(from + 16)}; }

  void store(float* to) const {
    _mm512_storeu_ps(to, parts[0]);
    _mm512_storeu_ps(to + 16, parts[1]);
  }
  [[gnu::always_inline]] void store(bf16* to) const {
    _mm512_storeu_si512(to, words<1>(rounded(parts[0]), rounded(parts[1])));
  }
  void store(fp16* to) const {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    auto* target = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(target, _mm512_cvtps_ph(parts[0], nearest));
    _mm256_storeu_si256(target + 1, _mm512_cvtps_ph(parts[1], nearest));
  }

  template <class F>
  [[gnu::always_inline]] void write_codes(const Scaling& scaling, std::uint8_t* to) const {
    const __m512 a = scaled(parts[0], scaling), b = scaled(parts[1], scaling);
    if constexpr (F::bits == 4) {
      const __m512i both = words<0>(integers(a), integers(b));
      const __m512i pairs = bitwise_choice(0xf, both, _mm512_srli_epi32(both, 12));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(pairs));
    } else {
      const __m512i codes = std::is_same_v<F, Int8> ? words<0>(integers(a), integers(b))
                                                    : e4m3_words(e4m3(a), e4m3(b));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(codes));
    }
  }

  template <class F>
  [[gnu::always_inline]] static Avx512x32 decode(const std::uint8_t* from, float scale) {
    const __m512 wide = _mm512_set1_ps(scale);
    const Avx512x32 all = units(F{}, from);
    return {_mm512_mul_ps(wide, all.parts[0]), _mm512_mul_ps(wide, all.parts[1])};
  }

  // The largest magnitude of groups of elements, as bits of a float.
  template <class T>
  struct Maximum {
    __m512i largest = _mm512_setzero_si512();
    // Magnitudes of both 16-bit types have the order of their bits.
    [[gnu::always_inline]] void include(const T* from) {
      const __m512i magnitudes = _mm512_set1_epi16(0x7fff);
      largest = _mm512_max_epu16(largest, _mm512_and_si512(_mm512_loadu_si512(from), magnitudes));
    }
    [[gnu::always_inline]] std::uint32_t bits() const {
      const __m256i half =
          _mm256_max_epu16(_mm512_castsi512_si256(largest), _mm512_extracti64x4_epi64(largest, 1));
      const __m128i quarter =
          _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
      const __m128i inverted = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
      const auto value = static_cast<std::uint16_t>(~_mm_cvtsi128_si32(inverted));
      return std::bit_cast<std::uint32_t>(to_float(T{value}));
    }
  };

 private:
  static __m256i load_words(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static __m512 load_half(const bf16* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_words(from)), 16));
  }
  static __m512 load_half(const fp16* from) { return _mm512_cvtph_ps(load_words(from)); }

  // bf16 in the upper halves.
  static __m512i rounded(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
  }

  // The lower (0) or upper (1) words of all elements.
  template <int part>
  static __m512i words(__m512i a, __m512i b) {
    const __m512i counting =
        _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                         12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i index = _mm512_add_epi16(_mm512_slli_epi16(counting, 1), _mm512_set1_epi16(part));
    return _mm512_permutex2var_epi16(a, index, b);
  }
  // Bits of a where the mask has ones, else of b.
  static __m512i bitwise_choice(int mask, __m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), a, b, 0xca);
  }

  static __m512 scaled(__m512 value, const Scaling& scaling) {
    return _mm512_mul_ps(_mm512_mul_ps(value, _mm512_set1_ps(scaling.first)),
                         _mm512_set1_ps(scaling.second));
  }
  static __m512i integers(__m512 scaled) {
    return _mm512_castps_si512(_mm512_add_ps(scaled, _mm512_set1_ps(0x1.8p23f)));
  }

  // E4M3 in the seven low bits, and the sign in bit 11. The element is rounded by adding 2^20 times
  // its own power of two, or that of 2^-6 if it is smaller: what is added to the mantissa of the
  // sum is the code, less eight for each power of two from 2^-6 on.
  static __m512i e4m3(__m512 value) {
    constexpr int larger_magnitude_of_both_with_sign_of_first = 3;
    const __m512 normal = _mm512_range_ps(value, _mm512_set1_ps(0x1p-6f),
                                          larger_magnitude_of_both_with_sign_of_first);
    const __m512i power = _mm512_and_si512(_mm512_castps_si512(normal),
                                           _mm512_set1_epi32(static_cast<int>(0xff800000u)));
    // The exponent of 2^-6 leaves 72 in the seven bits, which 56 more remove.
    const __m512i addend = _mm512_add_epi32(power, _mm512_set1_epi32((20 << 23) + 56));
    const __m512i sum = _mm512_castps_si512(_mm512_add_ps(value, _mm512_castsi512_ps(addend)));
    return _mm512_add_epi32(_mm512_sub_epi32(sum, power), _mm512_srli_epi32(power, 20));
  }
  static __m512i e4m3_words(__m512i a, __m512i b) {
    const __m512i both = words<0>(a, b);
    return bitwise_choice(0x007f007f, both, _mm512_srli_epi16(both, 4));
  }

  static __m512 integer_units(const std::uint8_t* from) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)),
                         _mm512_set1_ps(1.0f / 127));
  }
  static Avx512x32 units(Int8, const std::uint8_t* from) {
    return {integer_units(from), integer_units(from + 16)};
  }
  static __m512 table_units(const std::uint8_t* from) {
    const __m512i eight =
        _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    // The first code of a byte, and the second one in the upper half.
    const __m512i codes = _mm512_or_si512(eight, _mm512_slli_epi64(eight, 28));
    const __m512 table =
        _mm512_mul_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1),
                      _mm512_set1_ps(1.0f / 7));
    return _mm512_permutexvar_ps(codes, table);  // looks at four bits
  }
  static Avx512x32 units(Int4, const std::uint8_t* from) {
    return {table_units(from), table_units(from + 8)};
  }
  // E4M3 times a factor. Shifted, a code is an fp16 that is 2^-8 of its value: the exponent has one
  // bit more there, and denormals stay denormals.
  static Avx512x32 e4m3_units(const std::uint8_t* from, float factor) {
    const __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(load_words(from)), 7);
    const __m512i halves = _mm512_and_si512(wide, _mm512_set1_epi16(-0x4001));
    const __m512 scale = _mm512_set1_ps(0x1p8f * factor);
    return {_mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(halves)), scale),
            _mm512_mul_ps(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)), scale)};
  }
  static Avx512x32 units(Fp8, const std::uint8_t* from) { return e4m3_units(from, 1.0f / 448); }
  static Avx512x32 units(Mxfp8, const std::uint8_t* from) { return e4m3_units(from, 1); }
};

template <>
struct Avx512x32::Maximum<float> {
  __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
  void include(const float* from) {
    const __m512i magnitudes = _mm512_set1_epi32(0x7fffffff);
    low = _mm512_max_epu32(low, _mm512_and_si512(_mm512_loadu_si512(from), magnitudes));
    high = _mm512_max_epu32(high, _mm512_and_si512(_mm512_loadu_si512(from + 16), magnitudes));
  }
  std::uint32_t bits() const { return _mm512_reduce_max_epu32(_mm512_max_epu32(low, high)); }
};

}  // namespace zero::comm::wire
