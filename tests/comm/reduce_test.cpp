#include "comm/reduce.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "comm/call.h"
#include "comm/slices.h"
#include "tests/optim/support.h"

namespace zero::comm {
namespace {

using optim::test::encode;
using optim::test::Numbers;
using optim::test::random_floats;
using optim::test::vector_levels;

// Checks every pattern of a 16-bit type through the kernel's conversions, against
// zero/base/dtype.h.
template <class T>
void check_all_patterns(DType dtype, SimdLevel level) {
  std::vector<T> all(65536), zeros(65536), out(65536);
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const void* sources[] = {all.data(), zeros.data()};
  ordered_sum(sources, 2, out.data(), 65536, dtype, level);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float sum = to_float(all[i]) + to_float(zeros[i]);
    const T expected = from_float<T>(sum);
    if (std::isnan(sum))
      CHECK(std::isnan(to_float(out[i])));
    else if (out[i].bits != expected.bits)
      FAIL("pattern " << i << " gives " << out[i].bits << ", not " << expected.bits);
  }
}

// Checks sums that round, over pairs of patterns.
template <class T>
void check_random_pairs(DType dtype, SimdLevel level) {
  std::mt19937 random(7);
  const std::int64_t count = 300'001;
  std::vector<T> a(count), b(count), out(count);
  for (auto* side : {&a, &b})
    for (T& value : *side) value.bits = static_cast<std::uint16_t>(random());
  const void* sources[] = {a.data(), b.data()};
  ordered_sum(sources, 2, out.data(), count, dtype, level);
  int wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = to_float(a[i]) + to_float(b[i]);
    if (!std::isnan(sum)) wrong += out[i].bits != from_float<T>(sum).bits;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the kernel converts every 16-bit pattern as dtype.h does") {
  for (const SimdLevel level : {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512}) {
    if (!supports(level)) continue;
    INFO(name_of(level));
    check_all_patterns<bf16>(DType::bf16, level);
    check_all_patterns<fp16>(DType::fp16, level);
    check_random_pairs<bf16>(DType::bf16, level);
    check_random_pairs<fp16>(DType::fp16, level);
  }
}

TEST_CASE("sums give equal bits at every level") {
  constexpr std::int64_t count = 1037;  // blocks, vectors and a remainder
  ReduceGroups nested = 2;
  nested.sizes[1] = 4;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::int64})
    for (const Numbers numbers : {Numbers::usual, Numbers::wild}) {
      std::vector<std::vector<unsigned char>> values;
      std::vector<const void*> sources;
      for (unsigned seed = 0; seed < 7; ++seed)
        values.push_back(dtype == DType::int64
                             ? encode(random_floats(2 * count, numbers, seed), DType::fp32)
                             : encode(random_floats(count, numbers, seed), dtype));
      for (const auto& source : values) sources.push_back(source.data());
      for (const ReduceGroups& groups : {ReduceGroups{1}, ReduceGroups{7}, nested}) {
        const auto sum = [&](SimdLevel level) {
          std::vector<unsigned char> out(values[0].size());
          ordered_sum(sources, groups, out.data(), count, dtype, level);
          return out;
        };
        const auto expected = sum(SimdLevel::scalar);
        for (const SimdLevel level : vector_levels()) {
          INFO(name_of(level) << ", " << name_of(dtype));
          CHECK(sum(level) == expected);
        }
      }
    }
}

TEST_CASE("sums start from their first value and keep negative zero") {
  const float zero = -0.0f;
  const void* sources[] = {&zero, &zero, &zero};
  for (int group : {1, 2, 3}) {
    float out = 1;
    ordered_sum(sources, group, &out, 1, DType::fp32);
    CHECK(std::bit_cast<std::uint32_t>(out) == 0x80000000u);
  }
}

TEST_CASE("partial sums are rounded to the wire dtype") {
  // 1 + 2^-8 ties to 1 in bf16, so groups of two lose both small terms; one group of four keeps
  // them.
  const bf16 one = from_float<bf16>(1.0f), small = from_float<bf16>(1.0f / 256);
  const bf16 zero = from_float<bf16>(0.0f);
  const void* sources[] = {&one, &small, &small, &zero};
  bf16 out;
  ordered_sum(sources, 4, &out, 1, DType::bf16);
  CHECK(to_float(out) == 1.0f + 1.0f / 128);
  ordered_sum(sources, 2, &out, 1, DType::bf16);
  CHECK(to_float(out) == 1.0f);
}

TEST_CASE("a wider group sums the rounded sums of the groups inside") {
  // The first group of four loses its small term, and its sum loses that of the second one.
  const bf16 one = from_float<bf16>(1.0f), small = from_float<bf16>(1.0f / 256);
  const bf16 zero = from_float<bf16>(0.0f);
  const void* sources[] = {&one, &zero, &small, &zero, &small, &zero, &zero, &zero};
  ReduceGroups nested = 2;
  bf16 out;
  ordered_sum(sources, nested, &out, 1, DType::bf16);
  CHECK(to_float(out) == 1.0f + 1.0f / 128);
  nested.sizes[1] = 4;
  ordered_sum(sources, nested, &out, 1, DType::bf16);
  CHECK(to_float(out) == 1.0f);
}

TEST_CASE("slices cover a vector beyond 2^31 elements") {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, (std::int64_t{1} << 33) + 12345}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      std::int64_t next = 0;
      for (int r = 0; r < parts; ++r) {
        const Slice slice = slice_of(count, parts, r);
        CHECK(slice.first == next);
        CHECK(slice.count >= 0);
        next += slice.count;
      }
      CHECK(next == count);
    }
  }
}

}  // namespace zero::comm
