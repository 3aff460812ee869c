// Newton-Schulz against a plain loop in double, and its products: the same bits for every cut and
// vector level.
#include "optim/orthogonalize.h"

#include <doctest/doctest.h>

#include "optim/cpu/kernels.h"
#include "tests/optim/support.h"
#include "zero/base/cpu/thread_pool.h"

namespace {

using namespace zero;
using namespace zero::optim;
using namespace zero::optim::test;

using Matrix = std::vector<double>;  // row-major

Matrix times(const Matrix& a, const Matrix& b, std::int64_t rows, std::int64_t depth,
             std::int64_t cols) {
  Matrix out(static_cast<std::size_t>(rows * cols));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      for (std::int64_t k = 0; k < depth; ++k)
        out[i * cols + j] += a[i * depth + k] * b[k * cols + j];
  return out;
}

Matrix transposed(const Matrix& a, std::int64_t rows, std::int64_t cols) {
  Matrix out(a.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) out[j * rows + i] = a[i * cols + j];
  return out;
}

// The authors' formulation of Muon, or torch's.
Matrix newton_schulz(RuleKind rule, const std::vector<float>& from, std::int64_t rows,
                     std::int64_t cols) {
  Matrix x(from.begin(), from.end());
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double norm = std::sqrt(squares);
  for (double& value : x)
    value /= rule == RuleKind::muon_clamped ? std::max(norm, 1e-7) : norm + 1e-7;
  const bool tall = rows > cols;
  if (tall) {
    x = transposed(x, rows, cols);
    std::swap(rows, cols);
  }
  for (int step = 0; step < 5; ++step) {
    const Matrix a = times(x, transposed(x, rows, cols), rows, cols, rows);
    Matrix b = times(a, a, rows, rows, rows);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
    const Matrix change = times(b, x, rows, rows, cols);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + change[i];
  }
  return tall ? transposed(x, rows, cols) : x;
}

std::vector<float> orthogonal(RuleKind rule, const MatrixShape& shape, std::vector<float> matrix,
                              int threads) {
  ThreadPool pool(threads);
  std::vector<float> scratch(static_cast<std::size_t>(scratch_elements(shape)));
  NormSum norm;
  orthogonalize(*create_host_kernels(pool), rule, {shape, matrix.data(), scratch.data(), &norm},
                {});
  return matrix;
}

struct Size {
  std::int64_t rows, depth, cols;
};

}  // namespace

TEST_CASE("products have the same bits at every level and cut, and are right") {
  for (const Size& size : {Size{1, 1, 1}, {5, 3, 7}, {13, 40, 33}, {24, 256, 64}, {37, 700, 50}})
    for (const bool transposes : {false, true}) {
      CAPTURE(size.rows);
      const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
      const auto a = random_floats(count(size.rows * size.depth), Numbers::usual, 1);
      const auto b = random_floats(count(size.depth * size.cols), Numbers::usual, 2);
      const auto add = random_floats(count(size.rows * size.cols), Numbers::usual, 3);
      const auto product = [&](SimdLevel level, std::int64_t cut) {
        std::vector<float> out(add.size(), 7.f);
        const Product p{a.data(),   b.data(), out.data(), size.cols, size.depth,
                        transposes, -0.5f,    add.data(), 3.f};
        const cpu::Kernels& kernels = cpu::kernels(level);
        kernels.product(p, 0, cut);
        kernels.product(p, cut, size.rows);
        return out;
      };
      const auto expected = product(SimdLevel::scalar, 0);
      for (const SimdLevel level : vector_levels())
        for (std::int64_t cut = 0; cut <= size.rows; cut += 4)
          CHECK(same_bits(product(level, cut), expected));
      const Matrix left(a.begin(), a.end()), right(b.begin(), b.end());
      const Matrix exact =
          times(left, transposes ? transposed(right, size.cols, size.depth) : right, size.rows,
                size.depth, size.cols);
      for (std::size_t i = 0; i < exact.size(); ++i)
        CHECK(std::fabs(expected[i] - (-0.5 * exact[i] + 3 * add[i])) < 1e-7);
    }
}

TEST_CASE("all iterations are Newton-Schulz, for wide, tall, square and stacked matrices") {
  for (const RuleKind rule : {RuleKind::muon_gram, RuleKind::muon, RuleKind::muon_clamped})
    for (const Size& size :
         {Size{4, 1, 31}, {31, 1, 4}, {12, 1, 12}, {1, 1, 9}, {9, 1, 1}, {40, 1, 70}, {17, 3, 6}}) {
      const MatrixShape shape{size.depth, size.rows, size.cols, 1};
      const auto one = static_cast<std::size_t>(size.rows * size.cols);
      const auto start =
          random_floats(static_cast<std::size_t>(shape.elements()), Numbers::usual, 5);
      const auto result = orthogonal(rule, shape, start, 1);
      for (std::int64_t i = 0; i < size.depth; ++i) {
        const auto first = start.begin() + static_cast<std::ptrdiff_t>(one) * i;
        const Matrix expected = newton_schulz(
            rule, {first, first + static_cast<std::ptrdiff_t>(one)}, size.rows, size.cols);
        for (std::size_t e = 0; e < one; ++e)
          CHECK(std::fabs(result[one * static_cast<std::size_t>(i) + e] - expected[e]) < 2e-5);
      }
      for (const int threads : {2, 3})
        CHECK(same_bits(orthogonal(rule, shape, start, threads), result));
    }
}

TEST_CASE("norms near 1e-7 are bounded by addition, or from below as in torch") {
  constexpr std::int64_t rows = 5, cols = 7;
  for (const RuleKind rule : {RuleKind::muon_gram, RuleKind::muon, RuleKind::muon_clamped})
    for (const float scale : {1e-6f, 1e-8f, 1e-12f}) {
      CAPTURE(scale);
      auto start = random_floats(rows * cols, Numbers::usual, 5);
      for (float& value : start) value *= scale;
      const auto result = orthogonal(rule, {1, rows, cols, 1}, start, 1);
      const Matrix expected = newton_schulz(rule, start, rows, cols);
      for (std::size_t e = 0; e < expected.size(); ++e)
        CHECK(std::fabs(result[e] - expected[e]) < 2e-5);
    }
}

TEST_CASE("zero matrices stay zero; empty ones are no matter") {
  const MatrixShape shape{1, 3, 5, 1};
  for (const RuleKind rule : {RuleKind::muon_gram, RuleKind::muon_clamped})
    CHECK(orthogonal(rule, shape, std::vector<float>(15), 1) == std::vector<float>(15));
  CHECK(orthogonal(RuleKind::muon_gram, {1, 0, 5, 1}, {}, 1).empty());
}

TEST_CASE("parameters are matrices as DeepSpeed's Muon has them") {
  const auto shape = [](std::vector<std::int64_t> extents) { return matrix_shape(extents); };
  CHECK(shape({6, 40}).rows == 6);
  CHECK(shape({6, 40}).scale == 1);
  CHECK(shape({40, 10}).scale == 2);
  const MatrixShape cube = shape({2, 8, 2});
  CHECK(cube.batch == 2);
  CHECK(cube.scale == 2);
  const MatrixShape kernel = shape({5, 3, 4, 2});
  CHECK(kernel.batch == 1);
  CHECK(kernel.rows == 5);
  CHECK(kernel.cols == 24);
  CHECK(kernel.scale == std::sqrt(2.0));
  CHECK(shape({2, 3, 5, 4, 4}).batch == 30);
}
