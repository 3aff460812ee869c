// Codes in AVX2 with F16C.
#pragma once

#include <cstring>

#include "comm/wire/cpu/vector_codes.h"
#include "zero/base/simd/avx2.h"

namespace zero::comm::wire {

struct Avx2Codes {
  using V = simd::Vector<simd::Avx2>;

  template <class F>
  [[gnu::always_inline]] static void write(const V* scaled, std::uint8_t* to) {
    __m256i codes[4];
    for (int p = 0; p < 4; ++p)
      codes[p] = is_integer<F> ? _mm256_cvtps_epi32(scaled[p].value) : e4m3(scaled[p].value);
    const __m256i low = _mm256_packs_epi32(codes[0], codes[1]);
    const __m256i high = _mm256_packs_epi32(codes[2], codes[3]);
    const __m256i mixed =
        is_integer<F> ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if constexpr (F::bits == 8) return simd::write(to, bytes);
    const __m256i halves = _mm256_and_si256(bytes, _mm256_set1_epi8(0xf));
    const __m256i pairs = _mm256_maddubs_epi16(halves, _mm256_set1_epi16(16 << 8 | 1));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0xd8);
    simd::write(to, _mm256_castsi256_si128(packed));
  }

  template <class F>
  [[gnu::always_inline]] static void units(F format, const std::uint8_t* from, V* units) {
    for (int p = 0; p < 4; ++p) units[p].value = eight_units(format, from + p * F::bits);
  }

  template <class T>
  using Maximum = VectorMaximum<simd::Avx2, T>;

 private:
  // Like avx512_codes.h, except for the sign.
  [[gnu::always_inline]] static __m256i e4m3(__m256 value) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value);
    const __m256 normal = _mm256_max_ps(magnitude, _mm256_set1_ps(0x1p-6f));
    const __m256i power =
        _mm256_and_si256(_mm256_castps_si256(normal), _mm256_set1_epi32(0x7f800000));
    const __m256i addend = _mm256_add_epi32(power, _mm256_set1_epi32((20 << 23) + 56));
    const __m256i sum = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_castsi256_ps(addend)));
    const __m256i code =
        _mm256_add_epi32(_mm256_sub_epi32(sum, power), _mm256_srli_epi32(power, 20));
    const __m256i sign = _mm256_srli_epi32(_mm256_castps_si256(value), 24);
    return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)),
                           _mm256_and_si256(sign, _mm256_set1_epi32(0x80)));
  }

  [[gnu::always_inline]] static __m128i read_eight(const std::uint8_t* from) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  }
  [[gnu::always_inline]] static __m256 eight_units(Int8, const std::uint8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(read_eight(from))) * Int8::reciprocal;
  }
  [[gnu::always_inline]] static __m256 eight_units(Int4, const std::uint8_t* from) {
    const __m256i first = _mm256_sllv_epi32(_mm256_set1_epi32(simd::read<int>(from)),
                                            _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(first, 28)) * Int4::reciprocal;
  }
  // E4M3 times a factor.
  [[gnu::always_inline]] static __m256 e4m3_units(const std::uint8_t* from, float factor) {
    const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(read_eight(from)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(-0x4001))) * (0x1p8f * factor);
  }
  [[gnu::always_inline]] static __m256 eight_units(Fp8, const std::uint8_t* from) {
    return e4m3_units(from, Fp8::reciprocal);
  }
  [[gnu::always_inline]] static __m256 eight_units(Mxfp8, const std::uint8_t* from) {
    return e4m3_units(from, 1);
  }
};

using Avx2x32 = Floats32<Avx2Codes::V, Avx2Codes>;

}  // namespace zero::comm::wire
