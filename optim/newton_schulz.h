// Newton-Schulz over any set of matrix operations, all in fp32 and of fixed order: on host threads,
// or queued on a device. Ops has
//   product(product, rows)                 see product.h
//   copy(from, to, count)
//   transpose(from, rows, cols, to)        to[j, i] = from[i, j]
//   add_to_diagonal(matrix, edge, value)
//   normalise(values, count)               to a norm of 1, or a little less
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "optim/orthogonalize.h"
#include "optim/product.h"

namespace zero::optim {

// A wide matrix and room for what its iteration needs.
template <class Ops>
class NewtonSchulzIteration {
 public:
  NewtonSchulzIteration(std::int64_t rows, std::int64_t cols, float* scratch, Ops& ops)
      : rows_(rows), cols_(cols), ops_(ops), x_(scratch), next_(x_ + rows * cols) {
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
        ops_.copy(z, q, rows_ * rows_);
        ops_.add_to_diagonal(q, rows_, a);
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
  static constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  static constexpr int steps = 5, restart = 2;
  static constexpr int square_count = 5;

  // out = x x^T
  void gram(float* out) { ops_.product({x_, x_, out, rows_, cols_, true, 1, nullptr, 0}, rows_); }

  void square_product(const float* left, const float* right, float* out, float scale,
                      const float* add, float add_scale) {
    ops_.product({left, right, out, rows_, rows_, false, scale, add, add_scale}, rows_);
  }

  // x = left x + add_scale x
  void multiply(const float* left, float add_scale) {
    ops_.product(
        {left, x_, next_, cols_, rows_, false, 1, add_scale == 0 ? nullptr : x_, add_scale}, rows_);
    std::swap(x_, next_);
  }

  std::int64_t rows_, cols_;
  Ops& ops_;
  float *x_, *next_;
  std::array<float*, square_count> squares_{};
};

// Each matrix of the batch in place.
template <class Ops>
void orthogonalize_with(Ops& ops, NewtonSchulz iteration, const MatrixShape& shape, float* matrix,
                        float* scratch) {
  const std::int64_t count = shape.rows * shape.cols;
  const bool tall = shape.rows > shape.cols;
  const std::int64_t rows = std::min(shape.rows, shape.cols),
                     cols = std::max(shape.rows, shape.cols);
  for (std::int64_t i = 0; i < shape.batch && count > 0; ++i, matrix += count) {
    NewtonSchulzIteration<Ops> work(rows, cols, scratch, ops);
    if (tall)
      ops.transpose(matrix, shape.rows, shape.cols, work.x());
    else
      ops.copy(matrix, work.x(), count);
    ops.normalise(work.x(), count);
    // A square one has nothing to gain from its Gram matrix.
    if (iteration == NewtonSchulz::gram && rows < cols)
      work.by_gram();
    else
      work.standard();
    if (tall)
      ops.transpose(work.x(), rows, cols, matrix);
    else
      ops.copy(work.x(), matrix, count);
  }
}

}  // namespace zero::optim
