#include "optim/cpu/factors.h"

#include <algorithm>

#include "optim/gradient_norm.h"

namespace zero::optim::cpu {

void FactorSums::add(ThreadPool& pool) const {
  const FactoredMatrix& matrix = tensor.matrix;
  const std::int64_t cols = matrix.cols;
  const std::int64_t rows = (last() + cols - 1) / cols - tensor.first / cols;
  pool.for_ranges(rows, std::max<std::int64_t>(1, grain_elements / cols),
                  [&](std::int64_t begin, std::int64_t end) { add_rows(begin, end); });
  pool.for_ranges(cols, std::max<std::int64_t>(16, grain_elements / rows),
                  [&](std::int64_t begin, std::int64_t end) { add_cols(begin, end); });
}

// Rows count from the first row of the range.
void FactorSums::add_rows(std::int64_t begin, std::int64_t end) const {
  const std::int64_t cols = tensor.matrix.cols, first_row = tensor.first / cols;
  for (std::int64_t row = first_row + begin; row < first_row + end; ++row) {
    const std::int64_t from = std::max(tensor.first, row * cols);
    const std::int64_t to = std::min(last(), (row + 1) * cols);
    accumulate_norm(gradient(from), update.gradient_dtype, to - from, tensor.matrix.row_sums[row]);
  }
}

void FactorSums::add_cols(std::int64_t begin, std::int64_t end) const {
  constexpr std::int64_t tile = 64, most_rows = std::int64_t{1} << 20;  // between carries
  const FactoredMatrix& matrix = tensor.matrix;
  const std::int64_t cols = matrix.cols, first_row = tensor.first / cols;
  for (std::int64_t col = begin; col < end; col += tile)
    for (std::int64_t row = first_row; row * cols < last(); ++row) {
      const std::int64_t from = std::max(tensor.first, row * cols + col);
      const std::int64_t to = std::min(last(), row * cols + std::min(col + tile, end));
      if (from >= to) continue;
      float values[tile];
      optim::cast(gradient(from), update.gradient_dtype, values, DType::fp32, to - from);
      NormSum* sums = matrix.col_sums + row / matrix.rows * cols + (from - row * cols);
      for (std::int64_t i = 0; i < to - from; ++i) {
        add_square_to(values[i], sums[i]);
        if ((row - first_row) % most_rows == most_rows - 1) carry_limbs(sums[i].limbs);
      }
    }
  for (std::int64_t batch = 0; batch < matrix.batch; ++batch)
    for (std::int64_t col = begin; col < end; ++col)
      carry_limbs(matrix.col_sums[batch * cols + col].limbs);
}

void take_moments(const AdafactorFactors<float>& factors, const FactoredMatrix& matrix) {
  for (std::int64_t i = 0; i < matrix.all_rows(); ++i)
    matrix.row_var[i] = moment_after(factors, matrix.row_sums[i], matrix.cols, matrix.row_var[i]);
  for (std::int64_t i = 0; i < matrix.all_cols(); ++i) {
    matrix.col_var[i] = moment_after(factors, matrix.col_sums[i], matrix.rows, matrix.col_var[i]);
    matrix.col_scale[i] = scale_of_col(matrix.col_var[i]);
  }
  for (std::int64_t batch = 0; batch < matrix.batch; ++batch) {
    const float* moments = matrix.row_var + batch * matrix.rows;
    double sum = 0;
    for (int lane = 0; lane < moment_lanes; ++lane) sum += sum_of_lane(moments, matrix.rows, lane);
    const double mean = sum / static_cast<double>(matrix.rows);
    for (std::int64_t row = 0; row < matrix.rows; ++row)
      matrix.row_scale[batch * matrix.rows + row] = scale_of_row(factors, mean, moments[row]);
  }
}

void turn_to_directions(const AdafactorFactors<float>& factors, const TensorRange& tensor,
                        std::int64_t at, std::span<float> gradients) {
  const FactoredMatrix& matrix = tensor.matrix;
  const std::int64_t first = tensor.first + at, end = first + std::ssize(gradients);
  for (std::int64_t from = first; from < end;) {
    const std::int64_t row = from / matrix.cols, col = from % matrix.cols;
    const std::int64_t count = std::min(end - from, matrix.cols - col);
    const float row_scale = matrix.row_scale[row];
    const float* col_scales = matrix.col_scale + row / matrix.rows * matrix.cols + col;
    float* own = gradients.data() + (from - first);
    for (std::int64_t i = 0; i < count; ++i)
      own[i] = direction_of(factors, own[i], row_scale, col_scales[i]);
    from += count;
  }
}

}  // namespace zero::optim::cpu
