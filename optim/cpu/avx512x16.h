// Sixteen floats in AVX-512 (F, BW, DQ, VL); members as in scalar1.h.
#pragma once

#include <immintrin.h>

#include "zero/base/dtype.h"

namespace zero::optim::cpu {

struct Avx512x16 {
  static constexpr int lanes = 16;
  __m512 value;

  Avx512x16() = default;
  explicit Avx512x16(float from) : value(_mm512_set1_ps(from)) {}
  explicit Avx512x16(__m512 from) : value(from) {}

  static __m256i load_half(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static Avx512x16 load(const float* from) { return Avx512x16(_mm512_loadu_ps(from)); }
  static Avx512x16 load(const bf16* from) {
    const __m512i wide = _mm512_cvtepu16_epi32(load_half(from));
    return Avx512x16(_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
  }
  static Avx512x16 load(const fp16* from) { return Avx512x16(_mm512_cvtph_ps(load_half(from))); }

  __m256i to_half(const bf16*) const {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i words =
        _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(words);
  }
  __m256i to_half(const fp16*) const {
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  void store(float* to) const { _mm512_storeu_ps(to, value); }
  template <class T>
  void store(T* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), to_half(to));
  }
  template <class T>
  void stream(T* to) const {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), to_half(to));
  }
  static void finish_streaming() { _mm_sfence(); }

  friend Avx512x16 operator+(Avx512x16 a, Avx512x16 b) { return Avx512x16(a.value + b.value); }
  friend Avx512x16 operator*(Avx512x16 a, Avx512x16 b) { return Avx512x16(a.value * b.value); }
  friend Avx512x16 operator/(Avx512x16 a, Avx512x16 b) { return Avx512x16(a.value / b.value); }
  friend Avx512x16 fma(Avx512x16 a, Avx512x16 b, Avx512x16 c) {
    return Avx512x16(_mm512_fmadd_ps(a.value, b.value, c.value));
  }
  friend Avx512x16 sqrt(Avx512x16 a) { return Avx512x16(_mm512_sqrt_ps(a.value)); }
  friend Avx512x16 sign(Avx512x16 a) {
    const __m512 zero = _mm512_setzero_ps();
    const __mmask16 above = _mm512_cmp_ps_mask(a.value, zero, _CMP_GT_OQ);
    const __mmask16 below = _mm512_cmp_ps_mask(a.value, zero, _CMP_LT_OQ);
    return Avx512x16(_mm512_sub_ps(_mm512_maskz_mov_ps(above, _mm512_set1_ps(1)),
                                   _mm512_maskz_mov_ps(below, _mm512_set1_ps(1))));
  }

  struct Range {
    __m512i largest = _mm512_setzero_si512(), smallest = _mm512_set1_epi32(-1);
    void include(Avx512x16 element) {
      const __m512i magnitude =
          _mm512_and_si512(_mm512_castps_si512(element.value), _mm512_set1_epi32(0x7fffffff));
      largest = _mm512_max_epu32(largest, magnitude);
      smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(magnitude, _mm512_set1_epi32(1)));
    }
  };

  using Doubles = __m512d;
  static Doubles doubles(double from) { return _mm512_set1_pd(from); }
  template <int part>
  Doubles widen() const {
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, part));
  }

  struct Counts {
    __m512i value = _mm512_setzero_si512();
    void add_bits(Doubles from) { value = _mm512_add_epi64(value, _mm512_castpd_si512(from)); }
    void decrement_where_greater(Doubles a, Doubles b) {
      const __mmask8 greater = _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ);
      value = _mm512_mask_sub_epi64(value, greater, value, _mm512_set1_epi64(1));
    }
  };
};

}  // namespace zero::optim::cpu
