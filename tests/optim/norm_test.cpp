// The norm against exact integers of 640 bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>

#include "optim/cpu/kernels.h"
#include "optim/gradient_norm.h"
#include "tests/optim/support.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

// A number in units of 2^-160.
struct Exact {
  std::array<std::uint32_t, 20> words{};

  void add(std::uint64_t value, int position) {
    std::size_t word = static_cast<std::size_t>(position) / 32;
    const int shift = position % 32;
    const std::uint32_t parts[] = {
        static_cast<std::uint32_t>(value << shift),
        static_cast<std::uint32_t>(value << shift >> 32),
        shift == 0 ? 0 : static_cast<std::uint32_t>(value >> (64 - shift))};
    std::uint64_t carry = 0;
    for (std::size_t i = 0; word < words.size() && (i < 3 || carry != 0); ++i, ++word) {
      carry += std::uint64_t{words[word]} + (i < 3 ? parts[i] : 0);
      words[word] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }

  // |value| is significand * 2^exponent; the part of its square below the unit is dropped.
  void add_square(float value) {
    if (value == 0) return;
    int exponent;
    const double fraction = std::frexp(std::fabs(static_cast<double>(value)), &exponent);
    const auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 24));
    const int position = 2 * (exponent - 24) + 160;
    const std::uint64_t square = significand * significand;
    if (position >= 0)
      add(square, position);
    else if (position > -64)
      add(square >> -position, 0);
  }

  long double root() const {
    long double sum = 0;
    for (std::size_t i = words.size(); i-- > 0;)
      sum += std::ldexp(static_cast<long double>(words[i]), static_cast<int>(32 * i) - 160);
    return std::sqrt(sum);
  }
};

Exact exact(const std::vector<float>& values) {
  Exact sum;
  for (const float value : values) sum.add_square(value);
  return sum;
}

Exact exact(const NormSum& bins) {
  Exact sum;
  for (std::size_t k = 0; k < std::size(bins.limbs); ++k) {
    CHECK(bins.limbs[k] >= 0);
    if (k + 1 < std::size(bins.limbs)) CHECK(bins.limbs[k] < std::int64_t{1} << 40);
    sum.add(static_cast<std::uint64_t>(bins.limbs[k]), static_cast<int>(40 * k));
  }
  return sum;
}

NormSum bins_of(const std::vector<float>& values) {
  NormSum bins;
  accumulate_norm(values.data(), DType::fp32, static_cast<std::int64_t>(values.size()), bins);
  return bins;
}

// Returns numbers between two powers of two.
std::vector<float> between(std::size_t count, int low, int high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> exponent(low, high);
  std::uniform_real_distribution<float> fraction(1, 2);
  std::vector<float> values(count);
  for (float& value : values)
    value = std::ldexp(random() % 2 ? fraction(random) : -fraction(random), exponent(random));
  return values;
}

void check(const std::vector<float>& values) {
  const Exact expected = exact(values);
  const NormSum bins = bins_of(values);
  CHECK(bins.non_finite == 0);
  CHECK(exact(bins).words == expected.words);
  // Half an ulp from the sum, halved by the root, and half an ulp from the root.
  const long double root = expected.root();
  CHECK(std::fabs(norm_of(bins) - root) <= 1.7e-16L * root);
}

}  // namespace

TEST_CASE("the sum of squares is exact on the grid") {
  check({});
  check({0.0f, -0.0f});
  check({1.0f});
  check(random_floats(100000, Numbers::usual, 1));
  check(random_floats(100000, Numbers::wild, 2));
  check(std::vector<float>(20000, std::numeric_limits<float>::max()));
  check(std::vector<float>(20000, std::numeric_limits<float>::denorm_min()));
  check(std::vector<float>(20000, 1.99999988f));
  for (unsigned i = 0; i < 400; ++i) {
    std::mt19937 random(i);
    const int low = static_cast<int>(random() % 250) - 149;
    check(between(1 + random() % 6000, low, std::min(127, low + static_cast<int>(random() % 100)),
                  i));
  }
}

TEST_CASE("squares below the grid count as zero, those on it do not") {
  CHECK(norm_of(bins_of({0x1.fffffep-81f, 0x1p-149f})) == 0);
  CHECK(norm_of(bins_of({0x1p-80f})) == 0x1p-80);
  CHECK(bins_of({0x1p-80f, 0x1.fffffep-81f, 1.0f}).limbs[0] == 1);
}

TEST_CASE("every level gives equal limbs") {
  for (const Numbers numbers : {Numbers::usual, Numbers::wild})
    for (const DType dtype : floating)
      for (std::size_t count = 0; count < 4096; count += count < 67 ? 1 : 503) {
        auto values = random_floats(count, numbers, static_cast<unsigned>(count));
        if (count % 7 == 6) values[count / 2] = NAN;
        if (count % 7 == 5) values[count / 3] = -INFINITY;
        const auto bytes = encode(values, dtype);
        const auto limbs_of = [&](SimdLevel level) {
          NormSum bins, normalized;
          bins.non_finite = cpu::kernels(level).add_squares(
              bytes.data(), dtype, static_cast<std::int64_t>(count), bins.limbs);
          add_sum(bins, normalized);
          return normalized;
        };
        const NormSum expected = limbs_of(SimdLevel::scalar);
        for (const SimdLevel level : vector_levels()) {
          CHECK(std::ranges::equal(limbs_of(level).limbs, expected.limbs));
          CHECK(limbs_of(level).non_finite == expected.non_finite);
        }
      }
}

TEST_CASE("order and partition leave no trace") {
  auto values = between(30000, -100, 60, 3);
  const NormSum whole = bins_of(values);
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    NormSum ranks, chunks;
    for (std::size_t at = 0; at < values.size();) {
      const std::size_t count = std::min<std::size_t>(values.size() - at, 1 + random() % 9000);
      const std::vector<float> part(values.begin() + static_cast<std::ptrdiff_t>(at),
                                    values.begin() + static_cast<std::ptrdiff_t>(at + count));
      add_sum(bins_of(part), ranks);
      accumulate_norm(part.data(), DType::fp32, static_cast<std::int64_t>(count), chunks);
      at += count;
    }
    CHECK(std::ranges::equal(ranks.limbs, whole.limbs));
    CHECK(std::ranges::equal(chunks.limbs, whole.limbs));
    CHECK(norm_of(ranks) == norm_of(whole));
  }
}

TEST_CASE("limbs added without carrying, as an all-reduce does, give the same norm") {
  const NormSum one = bins_of(between(5000, -60, 10, 6));
  NormSum carried, plain;
  for (int rank = 0; rank < 1000; ++rank) {
    add_sum(one, carried);
    for (std::size_t k = 0; k < std::size(plain.limbs); ++k) plain.limbs[k] += one.limbs[k];
  }
  CHECK(norm_of(plain) == norm_of(carried));
  NormSum total;
  add_sum(plain, total);
  CHECK(std::ranges::equal(total.limbs, carried.limbs));
}

TEST_CASE("16-bit gradients count as their fp32 values") {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const auto bytes = encode(between(9999, -26, 14, 7), dtype);
    std::vector<float> wide(9999);
    cast(bytes.data(), dtype, wide.data(), DType::fp32, 9999);
    NormSum bins;
    accumulate_norm(bytes.data(), dtype, 9999, bins);
    CHECK(std::ranges::equal(bins.limbs, bins_of(wide).limbs));
    CHECK(exact(bins).words == exact(wide).words);
  }
}

TEST_CASE("elements that are not finite are counted and left out") {
  auto values = random_floats(10000, Numbers::usual, 8);
  values[0] = values[5000] = values[9999] = 0;
  const NormSum clean = bins_of(values);
  values[0] = INFINITY;
  values[5000] = NAN;
  values[9999] = -INFINITY;
  const NormSum bins = bins_of(values);
  CHECK(std::ranges::equal(bins.limbs, clean.limbs));
  CHECK(bins.non_finite == 3);
  CHECK(std::isinf(norm_of(bins)));
}

TEST_CASE("gradients of a type without a value are refused") {
  NormSum bins;
  std::int64_t word = 0;
  CHECK_THROWS_AS(accumulate_norm(&word, DType::int64, 1, bins), UsageError);
  CHECK_THROWS_AS(accumulate_gradient(&word, DType::int64, &word, DType::fp32, 1), UsageError);
  CHECK_THROWS_AS(accumulate_gradient(&word, DType::fp32, &word, DType::int64, 1), UsageError);
  CHECK_THROWS_AS(cast(&word, DType::int64, &word, DType::fp32, 1), UsageError);
  CHECK_THROWS_AS(cast(&word, DType::fp32, &word, DType::int64, 1), UsageError);
}

TEST_CASE("accumulation rounds once per addition, in the dtype") {
  float sum = 1, addend = 0x1p-24f;
  accumulate_gradient(&sum, DType::fp32, &addend, DType::fp32, 1);
  CHECK(sum == 1.0f);
  bf16 narrow = from_float<bf16>(1), small = from_float<bf16>(0x1p-7f * 0.75f);
  accumulate_gradient(&narrow, DType::bf16, &small, DType::bf16, 1);
  CHECK(to_float(narrow) == 1.0f + 0x1p-7f);
  accumulate_gradient(&sum, DType::fp32, &small, DType::bf16, 1);
  CHECK(sum == 1.0f + 0x1p-7f * 0.75f);
  accumulate_gradient(&narrow, DType::bf16, &addend, DType::fp32, 1);
  CHECK(to_float(narrow) == 1.0f + 0x1p-7f);
}

TEST_CASE("division rounds once, in the dtype") {
  fp16 half = from_float<fp16>(1);
  cpu::kernels().divide(&half, DType::fp16, 1, 3);
  CHECK(half.bits == from_float<fp16>(1.0f / 3.0f).bits);
  fp16 least{1};  // the smallest denormal; a tie rounds to even, so to zero
  cpu::kernels().divide(&least, DType::fp16, 1, 2);
  CHECK(least.bits == 0);
  float wide = 1;
  cpu::kernels().divide(&wide, DType::fp32, 1, 3);
  CHECK(wide == 1.0f / 3.0f);
}
