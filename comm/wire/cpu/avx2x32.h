// 32 floats in AVX2 with F16C; members as in portable32.h.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/wire/block_codes.h"
#include "zero/base/dtype.h"

namespace zero::comm::wire {

struct Avx2x32 {
  static constexpr int lanes = 32, count = 4;
  __m256 parts[count];

  template <class T>
  [[gnu::always_inline]] static Avx2x32 load(const T* from) {
    return {{load_part(from), load_part(from + 8), load_part(from + 16), load_part(from + 24)}};
  }
  [[gnu::always_inline]] void store(float* to) const {
    for (int p = 0; p < 4; ++p) _mm256_storeu_ps(to + 8 * p, parts[p]);
  }
  [[gnu::always_inline]] void store(bf16* to) const {
    for (int p = 0; p < 4; p += 2) {
      const __m256i mixed = _mm256_packus_epi32(rounded(parts[p]), rounded(parts[p + 1]));
      write(to + 8 * p, _mm256_permute4x64_epi64(mixed, 0xd8));
    }
  }
  [[gnu::always_inline]] void store(fp16* to) const {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    for (int p = 0; p < 4; ++p)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8 * p), _mm256_cvtps_ph(parts[p], nearest));
  }

  template <class F>
  [[gnu::always_inline]] void write_codes(const Scaling& scaling, std::uint8_t* to) const {
    __m256i codes[4];
    for (int p = 0; p < 4; ++p) {
      const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(parts[p], _mm256_set1_ps(scaling.first)),
                                          _mm256_set1_ps(scaling.second));
      codes[p] = is_integer<F> ? _mm256_cvtps_epi32(scaled) : e4m3(scaled);
    }
    const __m256i low = _mm256_packs_epi32(codes[0], codes[1]);
    const __m256i high = _mm256_packs_epi32(codes[2], codes[3]);
    const __m256i mixed =
        is_integer<F> ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if constexpr (F::bits == 8) return write(to, bytes);
    const __m256i halves = _mm256_and_si256(bytes, _mm256_set1_epi8(0xf));
    const __m256i pairs = _mm256_maddubs_epi16(halves, _mm256_set1_epi16(16 << 8 | 1));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }

  template <class F>
  [[gnu::always_inline]] static Avx2x32 decode(const std::uint8_t* from, float scale) {
    Avx2x32 result;
    for (int p = 0; p < 4; ++p)
      result.parts[p] = _mm256_mul_ps(_mm256_set1_ps(scale), units(F{}, from + p * F::bits));
    return result;
  }

  // The largest magnitude of groups of elements, as bits of a float.
  template <class T>
  struct Maximum {
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    // Magnitudes of both 16-bit types have the order of their bits.
    [[gnu::always_inline]] void include(const T* from) {
      const __m256i magnitudes = _mm256_set1_epi16(0x7fff);
      low = _mm256_max_epu16(low, _mm256_and_si256(read(from), magnitudes));
      high = _mm256_max_epu16(high, _mm256_and_si256(read(from + 16), magnitudes));
    }
    [[gnu::always_inline]] std::uint32_t bits() const {
      const __m256i both = _mm256_max_epu16(low, high);
      const __m128i half =
          _mm_max_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      const __m128i inverted = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
      const auto value = static_cast<std::uint16_t>(~_mm_cvtsi128_si32(inverted));
      return std::bit_cast<std::uint32_t>(to_float(T{value}));
    }
  };

 private:
  template <class F>
  static constexpr bool is_integer = std::is_same_v<F, Int8> || std::is_same_v<F, Int4>;

  [[gnu::always_inline]] static __m256i read(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  [[gnu::always_inline]] static void write(void* to, __m256i value) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), value);
  }
  [[gnu::always_inline]] static __m128i read_half(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  [[gnu::always_inline]] static __m256 load_part(const float* from) {
    return _mm256_loadu_ps(from);
  }
  [[gnu::always_inline]] static __m256 load_part(const bf16* from) {
    const __m256i wide = _mm256_cvtepu16_epi32(read_half(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  [[gnu::always_inline]] static __m256 load_part(const fp16* from) {
    return _mm256_cvtph_ps(read_half(from));
  }

  // bf16 in the low words.
  [[gnu::always_inline]] static __m256i rounded(__m256 value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
  }

  // As in avx512x32.h, but for the sign.
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

  // Of eight codes.
  [[gnu::always_inline]] static __m256 units(Int8, const std::uint8_t* from) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
                         _mm256_set1_ps(1.0f / 127));
  }
  [[gnu::always_inline]] static __m256 units(Int4, const std::uint8_t* from) {
    int codes;
    std::memcpy(&codes, from, sizeof codes);
    const __m256i first =
        _mm256_sllv_epi32(_mm256_set1_epi32(codes), _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(first, 28)),
                         _mm256_set1_ps(1.0f / 7));
  }
  [[gnu::always_inline]] static __m256 e4m3_units(const std::uint8_t* from, float factor) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const __m128i halves =
        _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7), _mm_set1_epi16(-0x4001));
    return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p8f * factor));
  }
  [[gnu::always_inline]] static __m256 units(Fp8, const std::uint8_t* from) {
    return e4m3_units(from, 1.0f / 448);
  }
  [[gnu::always_inline]] static __m256 units(Mxfp8, const std::uint8_t* from) {
    return e4m3_units(from, 1);
  }
};

template <>
struct Avx2x32::Maximum<float> {
  __m256i largest[4] = {};
  [[gnu::always_inline]] void include(const float* from) {
    for (int p = 0; p < 4; ++p)
      largest[p] = _mm256_max_epu32(
          largest[p], _mm256_and_si256(read(from + 8 * p), _mm256_set1_epi32(0x7fffffff)));
  }
  [[gnu::always_inline]] std::uint32_t bits() const {
    const __m256i all = _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]),
                                         _mm256_max_epu32(largest[2], largest[3]));
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
  }
};

}  // namespace zero::comm::wire
