#include "optim/orthogonalize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace zero::optim {

namespace {

// A wide matrix and scratch memory for the iteration.
class Iteration {
 public:
  Iteration(std::int64_t rows, std::int64_t cols, float* scratch, DeviceKernels& kernels,
            Stream stream)
      : rows_(rows),
        cols_(cols),
        kernels_(kernels),
        stream_(stream),
        x_(scratch),
        next_(x_ + rows * cols) {
    float* square = next_ + rows * cols;
    for (float*& part : squares_) part = std::exchange(square, square + rows * rows);
  }

  static std::int64_t elements(std::int64_t rows, std::int64_t cols) {
    return 2 * rows * cols + square_count * rows * rows;
  }

  float* x() { return x_; }

  void standard() {
    float *r = squares_[0], *z = squares_[1];
    for (int step = 0; step < steps; ++step) {
      gram(r);
      square_product(r, r, z, c, r, b);  // z = b r + c r r
      multiply(z, a);                    // x = a x + z x
    }
  }

  void by_gram() {
    auto [r, z, q, spare, other] = squares_;
    gram(r);
    for (int step = 0; step < steps; ++step) {
      if (step == restart) {
        multiply(q, 0);
        gram(r);
      }
      square_product(r, r, z, c, r, b);
      if (step == 0 || step == restart) {
        kernels_.transpose(z, 1, rows_ * rows_, q, stream_);  // a copy
        kernels_.add_to_diagonal(q, rows_, a, stream_);
      } else {
        square_product(z, q, spare, 1, q, a);
        std::swap(q, spare);
      }
      if (step == steps - 1 || step + 1 == restart) continue;
      square_product(z, r, spare, 1, r, a);          // spare = a r + z r
      square_product(z, spare, other, 1, spare, a);  // r = a spare + z spare
      std::swap(r, other);
    }
    multiply(q, 0);
  }

 private:
  static constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  static constexpr int steps = 5, restart = 2;
  static constexpr int square_count = 5;

  // out = x x^T
  void gram(float* out) { product({x_, x_, out, rows_, cols_, true, 1, nullptr, 0}); }

  void square_product(const float* left, const float* right, float* out, float scale,
                      const float* add, float add_scale) {
    product({left, right, out, rows_, rows_, false, scale, add, add_scale});
  }

  // x = left x + add_scale x
  void multiply(const float* left, float add_scale) {
    product({left, x_, next_, cols_, rows_, false, 1, add_scale == 0 ? nullptr : x_, add_scale});
    std::swap(x_, next_);
  }

  void product(const Product& product) { kernels_.product(product, rows_, stream_); }

  std::int64_t rows_, cols_;
  DeviceKernels& kernels_;
  Stream stream_;
  float *x_, *next_;
  std::array<float*, square_count> squares_{};
};

}  // namespace

MatrixShape matrix_shape(std::span<const std::int64_t> shape) {
  MatrixShape matrix;
  if (shape.size() < 2) return matrix;
  matrix.rows = shape[shape.size() - 2];
  matrix.cols = shape[shape.size() - 1];
  // DeepSpeed computes a convolution's scale from the sides of the kernel.
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

std::int64_t scratch_elements(const MatrixShape& shape) {
  return Iteration::elements(std::min(shape.rows, shape.cols), std::max(shape.rows, shape.cols));
}

void orthogonalize(DeviceKernels& kernels, RuleKind rule, const DeviceMatrix& matrix,
                   Stream stream) {
  const MatrixShape& shape = matrix.shape;
  const std::int64_t count = shape.rows * shape.cols;
  const bool tall = shape.rows > shape.cols;
  const auto [rows, cols] = std::minmax(shape.rows, shape.cols);
  // Transposing a row is a copy.
  const auto move = [&](const float* from, std::int64_t of_rows, std::int64_t of_cols, float* to) {
    kernels.transpose(from, tall ? of_rows : 1, tall ? of_cols : count, to, stream);
  };
  float* values = matrix.values;
  for (std::int64_t i = 0; i < shape.batch && count > 0; ++i, values += count) {
    Iteration work(rows, cols, matrix.scratch, kernels, stream);
    move(values, shape.rows, shape.cols, work.x());
    kernels.normalize(rule, work.x(), count, matrix.norm, stream);
    // A square matrix gains nothing from the Gram matrix.
    if (rule == RuleKind::muon_gram && rows < cols)
      work.by_gram();
    else
      work.standard();
    move(work.x(), rows, cols, values);
  }
}

}  // namespace zero::optim
