#include "comm/reduce.h"

#include <algorithm>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "comm/conversions.h"

namespace zero::comm {
namespace {

// Elements per pass: accumulators and one block of every stream stay in the first-level cache.
constexpr std::int64_t block = 512;

struct Sum {
  std::span<const void* const> sources;
  ReduceGroups groups;
  std::span<const std::uint8_t> ending;  // empty: as `groups` says
  void* out;
  std::int64_t count;

  int levels_ending_with(int source) const {
    return ending.empty() ? groups.ending_with(source) : ending[source];
  }
  // Of the innermost group that begins at source `first`.
  int end_of(int first) const {
    while (first + 1 < std::ssize(sources) && levels_ending_with(first) == 0) ++first;
    return first + 1;
  }
};

// What sums are made of, block by block; plain loops that every target vectorizes in its own way.
template <class T>
struct Loops {
  [[gnu::always_inline]] static void load(float* acc, const T* a, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = widen(a[i]);
  }
  [[gnu::always_inline]] static void load_sum(float* acc, const T* a, const T* b, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] = widen(a[i]) + widen(b[i]);
  }
  [[gnu::always_inline]] static void add(float* acc, const T* a, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) acc[i] += widen(a[i]);
  }
  [[gnu::always_inline]] static void store(T* out, const float* acc, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = narrow<T>(acc[i]);
  }
};

// acc = sum in fp32 of sources [first, last), elements [at, at + n).
template <class T, class Blocks>
[[gnu::always_inline]] inline void sum_block(const Sum& sum, int first, int last, std::int64_t at,
                                             std::int64_t n, float* acc) {
  const auto source = [&](int r) { return static_cast<const T*>(sum.sources[r]) + at; };
  if (last - first == 1) return Blocks::load(acc, source(first), n);
  Blocks::load_sum(acc, source(first), source(first + 1), n);
  for (int r = first + 2; r < last; ++r) Blocks::add(acc, source(r), n);
}

template <class T, class Blocks = Loops<T>>
[[gnu::always_inline]] inline void sum_all(const Sum& sum) {
  const int ranks = static_cast<int>(sum.sources.size());
  alignas(
      64) float sums[ReduceGroups::most_levels + 1][block];  // by level, of groups not ended yet
  alignas(64) T rounded[block];
  for (std::int64_t at = 0; at < sum.count; at += block) {
    const std::int64_t n = std::min(block, sum.count - at);
    bool begun[ReduceGroups::most_levels + 1] = {};
    int outermost = 0;
    for (int first = 0; first < ranks;) {
      const int last = sum.end_of(first);
      sum_block<T, Blocks>(sum, first, last, at, n, sums[0]);
      const int ended = last < ranks ? sum.levels_ending_with(last - 1) : outermost;
      for (int level = 0; level < ended; ++level) {
        Blocks::store(rounded, sums[level], n);
        if (begun[level + 1])
          Blocks::add(sums[level + 1], rounded, n);
        else
          Blocks::load(sums[level + 1], rounded, n);
        begun[level] = false;
        begun[level + 1] = true;
      }
      outermost = std::max(outermost, ended);
      first = last;
    }
    Blocks::store(static_cast<T*>(sum.out) + at, sums[outermost], n);
  }
}

// Integer sums associate, so neither groups nor order matter; unsigned, because overflow wraps.
template <>
[[gnu::always_inline]] inline void sum_all<std::uint64_t, Loops<std::uint64_t>>(const Sum& sum) {
  std::uint64_t total[block];
  for (std::int64_t at = 0; at < sum.count; at += block) {
    const std::int64_t n = std::min(block, sum.count - at);
    std::fill_n(total, n, std::uint64_t{0});
    for (const void* source : sum.sources) {
      const auto* values = static_cast<const std::uint64_t*>(source) + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] += values[i];
    }
    std::copy_n(total, n, static_cast<std::uint64_t*>(sum.out) + at);
  }
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void sum_avx2(const Sum& sum) {
  sum_all<T>(sum);
}

template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void sum_avx512(
    const Sum& sum) {
  sum_all<T>(sum);
}

// The conversion instructions round as the integer code does, denormals included, whatever the
// flush bits of the thread say (bf16 has no such instruction).
struct HardwareHalf {
  static constexpr int lanes = 8;

  [[gnu::target("avx,f16c")]] static void load(float* acc, const fp16* a, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) _mm256_storeu_ps(acc + i, widened(a + i));
    Loops<fp16>::load(acc + i, a + i, n - i);
  }
  [[gnu::target("avx,f16c")]] static void load_sum(float* acc, const fp16* a, const fp16* b,
                                                   std::int64_t n) {
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      _mm256_storeu_ps(acc + i, _mm256_add_ps(widened(a + i), widened(b + i)));
    Loops<fp16>::load_sum(acc + i, a + i, b + i, n - i);
  }
  [[gnu::target("avx,f16c")]] static void add(float* acc, const fp16* a, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      _mm256_storeu_ps(acc + i, _mm256_add_ps(_mm256_loadu_ps(acc + i), widened(a + i)));
    Loops<fp16>::add(acc + i, a + i, n - i);
  }
  [[gnu::target("avx,f16c")]] static void store(fp16* out, const float* acc, std::int64_t n) {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(acc + i), nearest));
    Loops<fp16>::store(out + i, acc + i, n - i);
  }

 private:
  [[gnu::always_inline, gnu::target("avx,f16c")]] static __m256 widened(const fp16* a) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
  }
};

void sum_f16c(const Sum& sum) {
  sum_all<fp16, HardwareHalf>(sum);
}

#endif

template <class T>
void run(const Sum& sum, [[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (std::is_same_v<T, fp16> && level != SimdLevel::scalar) return sum_f16c(sum);
  if (level == SimdLevel::avx512) return sum_avx512<T>(sum);
  if (level == SimdLevel::avx2) return sum_avx2<T>(sum);
#endif
  sum_all<T>(sum);
}

void run(const Sum& sum, DType dtype, SimdLevel level) {
  switch (dtype) {
    case DType::fp32:
      return run<float>(sum, level);
    case DType::bf16:
      return run<bf16>(sum, level);
    case DType::fp16:
      return run<fp16>(sum, level);
    case DType::int64:
      return run<std::uint64_t>(sum, level);
  }
}

}  // namespace

void ordered_sum(std::span<const void* const> sources, const ReduceGroups& groups, void* out,
                 std::int64_t count, DType dtype, SimdLevel level) {
  run({sources, groups, {}, out, count}, dtype, level);
}

void ordered_sum(std::span<const void* const> sources, std::span<const std::uint8_t> ending,
                 void* out, std::int64_t count, DType dtype, SimdLevel level) {
  run({sources, {}, ending, out, count}, dtype, level);
}

}  // namespace zero::comm
