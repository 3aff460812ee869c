// Eight floats in AVX2 with FMA and F16C; members as in scalar1.h.
#pragma once

#include <immintrin.h>

#include "zero/base/dtype.h"

namespace zero::optim::cpu {

struct Avx2x8 {
  static constexpr int lanes = 8;
  __m256 value;

  Avx2x8() = default;
  explicit Avx2x8(float from) : value(_mm256_set1_ps(from)) {}
  explicit Avx2x8(__m256 from) : value(from) {}

  static __m128i load_half(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  static Avx2x8 load(const float* from) { return Avx2x8(_mm256_loadu_ps(from)); }
  static Avx2x8 load(const bf16* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(load_half(from));
    return Avx2x8(_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16)));
  }
  static Avx2x8 load(const fp16* from) { return Avx2x8(_mm256_cvtph_ps(load_half(from))); }

  __m128i to_half(const bf16*) const {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
  __m128i to_half(const fp16*) const {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  void store(float* to) const { _mm256_storeu_ps(to, value); }
  template <class T>
  void store(T* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), to_half(to));
  }
  // Past the caches; `to` is aligned to the vector.
  template <class T>
  void stream(T* to) const {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), to_half(to));
  }
  static void finish_streaming() { _mm_sfence(); }

  friend Avx2x8 operator+(Avx2x8 a, Avx2x8 b) { return Avx2x8(a.value + b.value); }
  friend Avx2x8 operator*(Avx2x8 a, Avx2x8 b) { return Avx2x8(a.value * b.value); }
  friend Avx2x8 operator/(Avx2x8 a, Avx2x8 b) { return Avx2x8(a.value / b.value); }
  friend Avx2x8 fma(Avx2x8 a, Avx2x8 b, Avx2x8 c) {
    return Avx2x8(_mm256_fmadd_ps(a.value, b.value, c.value));
  }
  friend Avx2x8 sqrt(Avx2x8 a) { return Avx2x8(_mm256_sqrt_ps(a.value)); }
  friend Avx2x8 sign(Avx2x8 a) {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 above = _mm256_and_ps(_mm256_cmp_ps(a.value, zero, _CMP_GT_OQ), _mm256_set1_ps(1));
    const __m256 below = _mm256_and_ps(_mm256_cmp_ps(a.value, zero, _CMP_LT_OQ), _mm256_set1_ps(1));
    return Avx2x8(_mm256_sub_ps(above, below));
  }

  struct Range {
    __m256i largest = _mm256_setzero_si256(), smallest = _mm256_set1_epi32(-1);
    void include(Avx2x8 element) {
      const __m256i magnitude =
          _mm256_and_si256(_mm256_castps_si256(element.value), _mm256_set1_epi32(0x7fffffff));
      largest = _mm256_max_epu32(largest, magnitude);
      smallest = _mm256_min_epu32(smallest, _mm256_sub_epi32(magnitude, _mm256_set1_epi32(1)));
    }
  };

  using Doubles = __m256d;
  static Doubles doubles(double from) { return _mm256_set1_pd(from); }
  template <int part>
  Doubles widen() const {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(value, part));
  }

  struct Counts {
    __m256i value = _mm256_setzero_si256();
    void add_bits(Doubles from) { value = _mm256_add_epi64(value, _mm256_castpd_si256(from)); }
    void decrement_where_greater(Doubles a, Doubles b) {
      add_bits(_mm256_cmp_pd(a, b, _CMP_GT_OQ));
    }
  };
};

}  // namespace zero::optim::cpu
