// The registers and instructions of AVX-512 (F, BW, DQ, VL), for vector.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace zero::simd {

struct Avx512 {
  static constexpr int lanes = 16;
  using Floats = __m512;
  using Integers = __m512i;
  typedef std::uint32_t Bits [[gnu::vector_size(64)]];
  typedef std::uint16_t Halves [[gnu::vector_size(64)]];
  typedef std::uint64_t Counts [[gnu::vector_size(64)]];
  using Doubles = __m512d;
  using Words = __m256i;
  using Mask = __mmask16;

  static Floats all(float value) { return _mm512_set1_ps(value); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats sqrt(Floats value) { return _mm512_sqrt_ps(value); }
  static Integers widen(Words words) { return _mm512_cvtepu16_epi32(words); }
  static Words high_words(Integers values) {
    const Integers odd = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0x1f001d, 0x1b0019, 0x170015,
                                          0x130011, 0xf000d, 0xb0009, 0x70005, 0x30001);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, values));
  }
  static Mask nans(Floats values) { return _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q); }
  static Integers chosen(Mask mask, Integers a, Integers b) {
    return _mm512_mask_mov_epi32(b, mask, a);
  }
  static bool any_or_halfway(Mask mask, Integers values) {
    return !_kortestz_mask32_u8(_mm512_cmpeq_epi16_mask(values, _mm512_set1_epi32(-0x8000)), mask);
  }
  static Floats from_fp16(Words words) { return _mm512_cvtph_ps(words); }
  static Words to_fp16(Floats values) {
    return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  template <int part>
  static Doubles doubles(Floats values) {
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(values, part));
  }
  static std::uint32_t differing(Words a, Words b) { return bits(_mm256_cmpneq_epi16_mask(a, b)); }
  static std::uint32_t differing(Integers a, Integers b) {
    return bits(_mm512_cmpneq_epi32_mask(a, b));
  }
  static std::uint32_t differing_high(Integers a, Integers b) {
    return bits(_mm512_test_epi32_mask(_mm512_xor_si512(a, b), _mm512_set1_epi32(-0x10000)));
  }
  // In assembly: to widen a mask, GCC 12 may store 16 bits and load 32, the upper ones of another
  // value.
  static std::uint32_t bits(Mask mask) {
    std::uint32_t wide;
    asm("kmovw %1, %0" : "=r"(wide) : "k"(mask));
    return wide;
  }
  static void stream(void* to, Words words) { _mm256_stream_si256(static_cast<Words*>(to), words); }
};

}  // namespace zero::simd
