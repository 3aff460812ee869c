#include "optim/orthogonalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "optim/cpu/kernels.h"
#include "optim/gradient_norm.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::optim {

namespace {

constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
constexpr int steps = 5, restart = 2;
constexpr std::int64_t row_grain = 12;

// A wide matrix and room for what its iteration needs.
class Iteration {
 public:
  Iteration(std::int64_t rows, std::int64_t cols, float* scratch, ThreadPool& pool)
      : rows_(rows), cols_(cols), pool_(pool), x_(scratch), next_(x_ + rows * cols) {
    float* square = next_ + rows * cols;
    for (float*& part : squares_) part = std::exchange(square, square + rows * rows);
  }

  static std::int64_t elements(std::int64_t rows, std::int64_t cols) {
    return 2 * rows * cols + square_count * rows * rows;
  }

  float* x() { return x_; }

  void standard() {
    auto [r, z, ignored1, ignored2, ignored3] = squares_;
    for (int step = 0; step < steps; ++step) {
      gram(r);
      square_product(r, r, z, c, r, b);  // z = b r + c r r
      multiply(z, a);                    // x = a x + z x
    }
  }

  void by_gram() {
    auto [r, z, q, spare, other] = squares_;
    gram(r);
    bool has_q = false;
    for (int step = 0; step < steps; ++step) {
      if (step == restart) {
        multiply(q, 0);
        gram(r);
        has_q = false;
      }
      square_product(r, r, z, c, r, b);
      if (has_q) {
        square_product(z, q, spare, 1, q, a);
        std::swap(q, spare);
      } else {
        std::copy(z, z + rows_ * rows_, q);
        for (std::int64_t i = 0; i < rows_; ++i) q[i * rows_ + i] += a;
        has_q = true;
      }
      if (step == steps - 1 || step + 1 == restart) continue;
      square_product(z, r, spare, 1, r, a);          // spare = a r + z r
      square_product(z, spare, other, 1, spare, a);  // r = a spare + z spare
      std::swap(r, other);
    }
    multiply(q, 0);
  }

 private:
  static constexpr int square_count = 5;

  void run(const cpu::Product& product, std::int64_t rows) {
    pool_.for_ranges(rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::kernels().product(product, begin, end);
    });
  }

  // out = x x^T
  void gram(float* out) { run({x_, x_, out, rows_, cols_, true, 1, nullptr, 0}, rows_); }

  void square_product(const float* left, const float* right, float* out, float scale,
                      const float* add, float add_scale) {
    run({left, right, out, rows_, rows_, false, scale, add, add_scale}, rows_);
  }

  // x = left x + add_scale x
  void multiply(const float* left, float add_scale) {
    run({left, x_, next_, cols_, rows_, false, 1, add_scale == 0 ? nullptr : x_, add_scale}, rows_);
    std::swap(x_, next_);
  }

  std::int64_t rows_, cols_;
  ThreadPool& pool_;
  float *x_, *next_;
  std::array<float*, square_count> squares_{};
};

double norm_of(const float* values, std::int64_t count) {
  NormBins bins;
  accumulate_norm(values, DType::fp32, count, bins);
  return bins.norm();
}

// to[j, i] = from[i, j]
void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
  constexpr std::int64_t edge = 32;
  for (std::int64_t i0 = 0; i0 < rows; i0 += edge)
    for (std::int64_t j0 = 0; j0 < cols; j0 += edge)
      for (std::int64_t i = i0; i < std::min(rows, i0 + edge); ++i)
        for (std::int64_t j = j0; j < std::min(cols, j0 + edge); ++j)
          to[j * rows + i] = from[i * cols + j];
}

}  // namespace

MatrixShape matrix_shape(std::span<const std::int64_t> shape) {
  MatrixShape matrix;
  if (shape.size() < 2) return matrix;
  matrix.rows = shape[shape.size() - 2];
  matrix.cols = shape[shape.size() - 1];
  // DeepSpeed scales a convolution by its kernel's sides.
  if (matrix.rows > matrix.cols && matrix.cols > 0)
    matrix.scale = std::sqrt(static_cast<double>(matrix.rows) / static_cast<double>(matrix.cols));
  if (shape.size() == 4) {
    matrix.cols *= matrix.rows * shape[1];
    matrix.rows = shape[0];
    return matrix;
  }
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) matrix.batch *= shape[i];
  return matrix;
}

std::int64_t scratch_elements(NewtonSchulz, const MatrixShape& shape) {
  return Iteration::elements(std::min(shape.rows, shape.cols), std::max(shape.rows, shape.cols));
}

void orthogonalize(NewtonSchulz iteration, const MatrixShape& shape, float* matrix, float* scratch,
                   ThreadPool& pool) {
  const std::int64_t count = shape.rows * shape.cols;
  const bool tall = shape.rows > shape.cols;
  const std::int64_t rows = std::min(shape.rows, shape.cols),
                     cols = std::max(shape.rows, shape.cols);
  for (std::int64_t i = 0; i < shape.batch && count > 0; ++i, matrix += count) {
    Iteration work(rows, cols, scratch, pool);
    if (tall)
      transpose(matrix, shape.rows, shape.cols, work.x());
    else
      std::copy(matrix, matrix + count, work.x());
    const auto inverse = static_cast<float>(1 / (norm_of(matrix, count) + 1e-7));
    for (std::int64_t e = 0; e < count; ++e) work.x()[e] *= inverse;
    // A square one has nothing to gain from its Gram matrix.
    if (iteration == NewtonSchulz::gram && rows < cols)
      work.by_gram();
    else
      work.standard();
    if (tall)
      transpose(work.x(), rows, cols, matrix);
    else
      std::copy(work.x(), work.x() + count, matrix);
  }
}

}  // namespace zero::optim
