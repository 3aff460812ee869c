// The chosen matrix back end against plain loops; its bits depend on nothing but the values.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/model/random.h"

namespace {

using gpt::Matmul;
using gpt::Product;
using gpt::ProductShape;
using zero::bf16;
using zero::fp16;

template <class T>
double value_of(T value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return zero::to_float(value);
}

template <class T>
T value_from(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return zero::from_float<T>(static_cast<float>(value));
}

// Starts `shift` elements after an aligned address.
template <class T>
struct Matrix {
  Matrix(std::int64_t count, std::uint64_t seed, std::int64_t shift)
      : memory(count + 64), data(memory.data() + shift) {
    const gpt::CounterRandom random(seed, "matrix");
    for (std::int64_t i = 0; i < count; ++i)
      data[i] = value_from<T>(random.uniform(static_cast<std::uint64_t>(i)) - 0.5);
  }
  Matrix(const Matrix&) = delete;
  gpt::Buffer<T> memory;
  T* data;
};

// Returns the result, after checking it within `tolerance` of the terms' magnitude.
template <class T, class C>
std::vector<C> multiply(Matmul& matmul, const ProductShape& s, std::int64_t shift,
                        double tolerance) {
  const Matrix<T> a((s.transpose_a ? s.k : s.m) * s.lda, 1, shift);
  const Matrix<T> b((s.transpose_b ? s.n : s.k) * s.ldb, 2, shift);
  const Matrix<T> bias(s.n, 3, shift);
  const Matrix<C> before(s.m * s.ldc, 4, shift);
  Matrix<C> c(s.m * s.ldc, 4, shift);
  matmul.run<T, C>({s, a.data, b.data, c.data, s.bias ? bias.data : nullptr});
  double worst = 0;
  std::vector<C> result;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = (s.bias ? value_of(bias.data[j]) : 0) +
                   (s.accumulate ? value_of(before.data[i * s.ldc + j]) : 0);
      for (std::int64_t k = 0; k < s.k; ++k)
        sum += value_of(a.data[s.transpose_a ? k * s.lda + i : i * s.lda + k]) *
               value_of(b.data[s.transpose_b ? j * s.ldb + k : k * s.ldb + j]);
      result.push_back(c.data[i * s.ldc + j]);
      worst = std::max(worst, std::abs(value_of(result.back()) - sum) / (1 + std::abs(sum)));
    }
  INFO("m ", s.m, " n ", s.n, " k ", s.k, " transposed ", s.transpose_a, s.transpose_b, " bias ",
       s.bias, " accumulate ", s.accumulate);
  CHECK(worst <= tolerance);
  for (std::int64_t i = 0; i < s.m; ++i)  // elements outside the rows are unchanged
    for (std::int64_t j = s.n; j < s.ldc; ++j)
      CHECK(value_of(c.data[i * s.ldc + j]) == value_of(before.data[i * s.ldc + j]));
  return result;
}

template <class T, class C>
void check_back_end(double tolerance) {
  zero::ThreadPool pool(2);
  Matmul matmul(pool);
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size size : {Size{1, 1, 1},
                          {5, 3, 7},
                          {1, 70, 33},
                          {70, 1, 33},
                          {130, 36, 144},
                          {64, 300, 48},
                          {97, 513, 61}})
    for (int form = 0; form < 16; ++form) {
      const bool ta = form & 1, tb = form & 2;
      const ProductShape shape{.m = size.m,
                               .n = size.n,
                               .k = size.k,
                               .transpose_a = ta,
                               .transpose_b = tb,
                               .lda = (ta ? size.m : size.k) + 2,
                               .ldb = (tb ? size.k : size.n) + 3,
                               .ldc = size.n + 5,
                               .bias = (form & 4) != 0,
                               .accumulate = (form & 8) != 0};
      const auto aligned = multiply<T, C>(matmul, shape, 0, tolerance);
      for (const std::int64_t shift : {1, 5, 16}) {
        const auto shifted = multiply<T, C>(matmul, shape, shift, tolerance);
        CHECK(std::memcmp(aligned.data(), shifted.data(), aligned.size() * sizeof(C)) == 0);
      }
    }
}

TEST_CASE("fp32 products are right, and alignment does not change a bit") {
  check_back_end<float, float>(2e-6);
}
TEST_CASE("fp64 products are right, and alignment does not change a bit") {
  check_back_end<double, double>(1e-14);
}
TEST_CASE("bf16 products round once") {
  check_back_end<bf16, bf16>(1.0 / 256);
}
TEST_CASE("bf16 products accumulate in fp32") {
  check_back_end<bf16, float>(2e-6);
}

TEST_CASE("fp16 products round once") {
  check_back_end<fp16, fp16>(1.0 / 2048);
}
TEST_CASE("fp16 products accumulate in fp32") {
  check_back_end<fp16, float>(2e-6);
}

TEST_CASE("ranges cover everything once, at multiples of the grain") {
  for (const std::int64_t count : {0, 1, 63, 64, 65, 1000})
    for (const int parts : {1, 2, 3, 7}) {
      std::int64_t at = 0;
      for (int i = 0; i < parts; ++i) {
        const gpt::Range range = gpt::part_of(count, 64, parts, i);
        CHECK(range.begin == at);
        CHECK((range.begin % 64 == 0 || range.begin == count));
        at = range.end;
      }
      CHECK(at == count);
    }
}

}  // namespace
