#include "optim/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "optim/cpu/kernels.h"
#include "optim/gradient_norm.h"
#include "optim/matrix_elements.h"
#include "optim/newton_schulz.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::optim {

namespace {

class PoolOps {
 public:
  explicit PoolOps(ThreadPool& pool) : pool_(pool) {}

  void product(const Product& product, std::int64_t rows) {
    constexpr std::int64_t row_grain = 12;
    pool_.for_ranges(rows, row_grain, [&](std::int64_t begin, std::int64_t end) {
      cpu::kernels().product(product, begin, end);
    });
  }

  void copy(const float* from, float* to, std::int64_t count) { std::copy_n(from, count, to); }

  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
    constexpr std::int64_t edge = 32;
    for (std::int64_t i0 = 0; i0 < rows; i0 += edge)
      for (std::int64_t j0 = 0; j0 < cols; j0 += edge)
        for (std::int64_t i = i0; i < std::min(rows, i0 + edge); ++i)
          for (std::int64_t j = j0; j < std::min(cols, j0 + edge); ++j)
            to[j * rows + i] = from[i * cols + j];
  }

  void add_to_diagonal(float* matrix, std::int64_t edge, float value) {
    for (std::int64_t i = 0; i < edge; ++i) matrix[i * edge + i] += value;
  }

  void normalise(float* values, std::int64_t count) {
    NormBins bins;
    accumulate_norm(values, DType::fp32, count, bins);
    const float inverse = inverse_of_norm(bins.norm());
    for (std::int64_t i = 0; i < count; ++i) values[i] *= inverse;
  }

 private:
  ThreadPool& pool_;
};

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
  return NewtonSchulzIteration<PoolOps>::elements(std::min(shape.rows, shape.cols),
                                                  std::max(shape.rows, shape.cols));
}

void orthogonalize(NewtonSchulz iteration, const MatrixShape& shape, float* matrix, float* scratch,
                   ThreadPool& pool) {
  PoolOps ops(pool);
  orthogonalize_with(ops, iteration, shape, matrix, scratch);
}

}  // namespace zero::optim
