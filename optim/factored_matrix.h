// Adafactor's second moment of a matrix, factored into rows and columns (Shazeer and Stern, 2018).
// The squares of gradients are added up exactly, so that any rank may add the squares of its
// elements. Constexpr, as in square_sum.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "optim/square_sum.h"
#include "optim/update_rules.h"

namespace zero::optim {

// A parameter of two or more dimensions as a batch of consecutive row-major matrices. The arrays
// are in the device's memory, by batch: fp32 second moments, which last; the sums of squares of a
// step's gradients, and 1 / root of the factors, which last until the parameter's update.
struct FactoredMatrix {
  std::int64_t batch = 1, rows = 1, cols = 1;
  float *row_var = nullptr, *col_var = nullptr;
  NormSum *row_sums = nullptr, *col_sums = nullptr;
  float *row_scale = nullptr, *col_scale = nullptr;

  constexpr std::int64_t all_rows() const { return batch * rows; }
  constexpr std::int64_t all_cols() const { return batch * cols; }
  constexpr std::int64_t elements() const { return batch * rows * cols; }
};

// The tensor of a range: the number of elements, and the first element in the range.
struct TensorRange {
  std::int64_t first = 0, elements = 0;
  FactoredMatrix matrix = {};  // without arrays if the rule has no factors
};

// Adds the square of a value, cut to the grid; limbs that were carried before take 2^22 squares.
constexpr void add_square_to(float value, NormSum& sum) {
  if (!is_finite_value(value)) {
    ++sum.non_finite;
    return;
  }
  const double wide = static_cast<double>(value);
  const auto bits = std::bit_cast<std::uint64_t>(wide * wide);
  if (bits == 0) return;
  const int exponent = static_cast<int>(bits >> 52) - 1023 - 52;
  std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | (std::uint64_t{1} << 52);
  int position = exponent - norm_grid;
  if (position < 0) {
    significand = position > -64 ? significand >> -position : 0;
    position = 0;
  }
  constexpr std::uint64_t mask = (std::uint64_t{1} << norm_limb_bits) - 1;
  const int limb = position / norm_limb_bits, shift = position % norm_limb_bits;
  const std::uint64_t rest = significand >> (norm_limb_bits - shift);
  sum.limbs[limb] += static_cast<std::int64_t>((significand << shift) & mask);
  if (rest == 0) return;
  sum.limbs[limb + 1] += static_cast<std::int64_t>(rest & mask);
  if (rest > mask) sum.limbs[limb + 2] += static_cast<std::int64_t>(rest >> norm_limb_bits);
}

// Returns the second moment of a row or column of `count` elements after this step.
template <class Sum>
constexpr float moment_after(const AdafactorFactors<float>& factors, const Sum& sum,
                             std::int64_t count, float before) {
  const double norm = norm_of(sum) * static_cast<double>(factors.gradient_multiplier);
  const double mean =
      norm * norm / static_cast<double>(count) + static_cast<double>(factors.epsilon);
  return static_cast<float>(static_cast<double>(factors.beta2) * static_cast<double>(before) +
                            static_cast<double>(factors.square_share) * mean);
}

// The mean of the rows' moments is added up in this many sums, which are then added in order.
inline constexpr int moment_lanes = 256;

constexpr double sum_of_lane(const float* moments, std::int64_t count, int lane) {
  double sum = 0;
  for (std::int64_t i = lane; i < count; i += moment_lanes) sum += static_cast<double>(moments[i]);
  return sum;
}

// Returns 1 / root of a row's share in the moments: the row's moment by the rows' mean.
template <class F>
constexpr float scale_of_row(const AdafactorFactors<F>& factors, double mean, float moment) {
  using std::sqrt;
  const double least = static_cast<double>(factors.least_root);
  return static_cast<float>(sqrt((mean > least ? mean : least) / static_cast<double>(moment)));
}
constexpr float scale_of_col(float moment) {
  using std::sqrt;
  return static_cast<float>(1 / sqrt(static_cast<double>(moment)));
}

constexpr float direction_of(const AdafactorFactors<float>& factors, float gradient,
                             float row_scale, float col_scale) {
  const float scale = row_scale * col_scale, most = 1 / factors.least_root;
  return gradient * factors.gradient_multiplier * (scale < most ? scale : most);
}

}  // namespace zero::optim
