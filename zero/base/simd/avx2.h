// The registers and instructions of AVX2 with FMA and F16C, for vector.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace zero::simd {

struct Avx2 {
  static constexpr int lanes = 8;
  using Floats = __m256;
  using Integers = __m256i;
  typedef std::uint32_t Bits [[gnu::vector_size(32)]];
  typedef std::uint16_t Halves [[gnu::vector_size(32)]];
  typedef std::uint64_t Counts [[gnu::vector_size(32)]];
  using Doubles = __m256d;
  using Words = __m128i;  // 16 bits each, by lane
  using Mask = Floats;

  static Floats all(float value) { return _mm256_set1_ps(value); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats sqrt(Floats value) { return _mm256_sqrt_ps(value); }
  static Integers widen(Words words) { return _mm256_cvtepu16_epi32(words); }
  static Words high_words(Integers values) {
    const Integers high = _mm256_srli_epi32(values, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  static Mask nans(Floats values) { return _mm256_cmp_ps(values, values, _CMP_UNORD_Q); }
  static Integers chosen(Mask mask, Integers a, Integers b) {
    return _mm256_blendv_epi8(b, a, _mm256_castps_si256(mask));
  }
  // Returns true if the mask has a lane, or the low half of a lane is 0x8000: halfway between two
  // values of bf16. Also true for some NaNs.
  static bool any_or_halfway(Mask mask, Integers values) {
    const Integers halfway = _mm256_cmpeq_epi16(values, _mm256_set1_epi32(-0x8000));
    const Integers any = _mm256_or_si256(halfway, _mm256_castps_si256(mask));
    return _mm256_testz_si256(any, any) == 0;
  }
  static Floats from_fp16(Words words) { return _mm256_cvtph_ps(words); }
  static Words to_fp16(Floats values) {
    return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  template <int part>
  static Doubles doubles(Floats values) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(values, part));
  }
  static std::uint32_t differing(Words a, Words b) {
    const Words equal = _mm_packs_epi16(_mm_cmpeq_epi16(a, b), _mm_setzero_si128());
    return static_cast<std::uint32_t>(_mm_movemask_epi8(equal)) ^ 0xffu;
  }
  static std::uint32_t differing(Integers a, Integers b) {
    const Floats equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
    return static_cast<std::uint32_t>(_mm256_movemask_ps(equal)) ^ 0xffu;
  }
  static std::uint32_t differing_high(Integers a, Integers b) {
    return differing(_mm256_srli_epi32(_mm256_xor_si256(a, b), 16), _mm256_setzero_si256());
  }
  static void stream(void* to, Words words) { _mm_stream_si128(static_cast<Words*>(to), words); }
};

}  // namespace zero::simd
