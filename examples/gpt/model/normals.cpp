#include "examples/gpt/model/normals.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "zero/base/simd.h"

namespace gpt {
namespace {

constexpr int pairs_of_block = 64;

// The definition of the values.
double normal(const CounterRandom& random, std::int64_t element) {
  const auto pair = static_cast<std::uint64_t>(element / 2);
  const double radius = std::sqrt(-2 * std::log(random.uniform(2 * pair)));
  const double angle = 2 * std::numbers::pi * random.uniform(2 * pair + 1);
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// CounterRandom::uniform(): exact, and without the conversion of 64-bit integers that AVX2 lacks.
[[gnu::always_inline]] inline double quick_uniform(const CounterRandom& random,
                                                   std::uint64_t counter) {
  const std::uint64_t n = (random.bits(counter) >> 11) + 1;
  const double high = std::bit_cast<double>(0x4530000000000000u | (n >> 32));
  const double low = std::bit_cast<double>(0x4330000000000000u | (n & 0xffffffffu));
  return ((high - (0x1p84 + 0x1p52)) + low) * 0x1p-53;
}

// For x in (0, 1], to a few units in the last place: x = 2^e m, with m between the roots of 1/2 and
// 2, and log m = 2 atanh((m - 1) / (m + 1)).
[[gnu::always_inline]] inline double quick_log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // The exponent plus 1024, and its double without an instruction that AVX2 lacks.
  const std::uint64_t biased = (bits - 0x3fe6a09e667f3bcdu + (std::uint64_t{1024} << 52)) >> 52;
  const double m = std::bit_cast<double>(bits - ((biased - 1024) << 52));
  const double e = std::bit_cast<double>(0x4330000000000000u + biased) - (0x1p52 + 1024);
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) sum = sum * z + 1.0 / k;
  return e * std::numbers::ln2 + 2 * (s + s * z * sum);
}

struct Turned {
  double cos, sin;
};

// For angles from 0 to 2 pi, with an error of a few 2^-53.
[[gnu::always_inline]] inline Turned quick_turn(double angle) {
  const double shifted = angle * (2 / std::numbers::pi) + 0x1.8p52, quarters = shifted - 0x1.8p52;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted) & 3;
  const double r = (angle - quarters * (std::numbers::pi / 2)) - quarters * 0x1.1a62633145c07p-54;
  const double z = r * r;
  double c = 1, s = 1;
  for (int k = 16; k >= 2; k -= 2) c = 1 - c * (z * (1.0 / (k * (k - 1))));
  for (int k = 17; k >= 3; k -= 2) s = 1 - s * (z * (1.0 / (k * (k - 1))));
  s *= r;
  const bool swap = (quadrant & 1) != 0;
  const double x = swap ? s : c, y = swap ? c : s;
  return {quadrant == 1 || quadrant == 2 ? -x : x, quadrant >= 2 ? -y : y};
}

// Rounds the values to float. Returns whether all are certain to be as from normal(): no number
// within the error bound of a quick value rounds to another float.
[[gnu::always_inline]] inline bool quick_pairs(const CounterRandom& random, std::uint64_t pair,
                                               double deviation, float* values) {
  float cosines[pairs_of_block], sines[pairs_of_block];
  std::uint64_t doubtful = 0;
  for (int p = 0; p < pairs_of_block; ++p) {
    const std::uint64_t counter = 2 * (pair + static_cast<std::uint64_t>(p));
    const double radius = std::sqrt(-2 * quick_log(quick_uniform(random, counter)));
    const Turned turned = quick_turn(2 * std::numbers::pi * quick_uniform(random, counter + 1));
    const double x = deviation * (radius * turned.cos), y = deviation * (radius * turned.sin);
    const double error = deviation * radius * 0x1p-43;
    cosines[p] = static_cast<float>(x);
    sines[p] = static_cast<float>(y);
    doubtful |= (static_cast<float>(x - error) != static_cast<float>(x + error)) |
                (static_cast<float>(y - error) != static_cast<float>(y + error));
  }
  for (int p = 0; p < pairs_of_block; ++p) {
    values[2 * p] = cosines[p];
    values[2 * p + 1] = sines[p];
  }
  return doubtful == 0;
}

bool pairs_portable(const CounterRandom& random, std::uint64_t pair, double deviation,
                    float* values) {
  return quick_pairs(random, pair, deviation, values);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] bool pairs_avx2(const CounterRandom& random, std::uint64_t pair,
                                            double deviation, float* values) {
  return quick_pairs(random, pair, deviation, values);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] bool pairs_avx512(
    const CounterRandom& random, std::uint64_t pair, double deviation, float* values) {
  return quick_pairs(random, pair, deviation, values);
}
#endif

auto* quick_pairs_of_level() {
#if defined(__x86_64__)
  if (zero::simd_level() == zero::SimdLevel::avx512) return &pairs_avx512;
  if (zero::simd_level() == zero::SimdLevel::avx2) return &pairs_avx2;
#endif
  return &pairs_portable;
}

}  // namespace

void fill_normals(const CounterRandom& random, std::int64_t first, double deviation,
                  std::span<float> values) {
  auto* const quick = quick_pairs_of_level();
  const auto count = std::ssize(values);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t element = first + i;
    std::int64_t end = std::min(count, i + 2 * pairs_of_block);
    if (element % 2 != 0) end = i + 1;
    if (end - i < 2 * pairs_of_block ||
        !quick(random, static_cast<std::uint64_t>(element / 2), deviation, &values[i]))
      for (std::int64_t j = i; j < end; ++j)
        values[static_cast<std::size_t>(j)] =
            static_cast<float>(deviation * normal(random, first + j));
    i = end;
  }
}

}  // namespace gpt
