// Adafactor's matrices, whose second moment is factored: sums of squares by rows and columns, then
// moments, and steps along directions. Sums are of integers, and the mean of moments has a fixed
// order, so no result depends on the order of threads.
#include <cuda_runtime.h>

#include <algorithm>

#include "optim/cuda/block_sum.cuh"
#include "optim/cuda/norm_kernels.h"
#include "optim/cuda/rule_lane.cuh"

namespace zero::optim::cuda {
namespace {

using Factors = AdafactorFactors<float>;

// A range of a tensor in the arrays of an update.
struct Part {
  std::int64_t begin, count, group;
  TensorRange tensor;

  __device__ Part(const DeviceUpdate& update, int number)
      : begin(number == 0 ? 0 : update.ranges[number - 1].end),
        count(update.ranges[number].filled - begin),
        group(update.ranges[number].group),
        tensor(update.tensors[number]) {}
};

__device__ void add_atomically(const NormSum& sum, NormSum& to) {
  for (int k = 0; k < norm_limb_count; ++k)
    if (sum.limbs[k] != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(to.limbs + k),
                static_cast<unsigned long long>(sum.limbs[k]));
  if (sum.non_finite != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(&to.non_finite),
              static_cast<unsigned long long>(sum.non_finite));
}

// Adds up every `stride`-th element of the tensor in [first, end) by a single thread.
__device__ void add_elements(const DeviceUpdate& update, const Part& part, std::int64_t first,
                             std::int64_t end, std::int64_t stride, NormSum& to) {
  NormSum sum;
  for (std::int64_t at = first; at < end; at += stride)
    add_square_to(
        load_one(update.gradient, update.gradient_dtype, part.begin + at - part.tensor.first), sum);
  carry_limbs(sum.limbs);
  add_atomically(sum, to);
}

// A warp takes a row at a time, and a thread every 32nd element.
__device__ void add_rows(const DeviceUpdate& update, const Part& part) {
  const FactoredMatrix& matrix = part.tensor.matrix;
  const std::int64_t first = part.tensor.first, end = first + part.count, cols = matrix.cols;
  const std::int64_t warps = std::int64_t{gridDim.x} * (threads / 32);
  const std::int64_t own = std::int64_t{blockIdx.x} * (threads / 32) + threadIdx.x / 32;
  for (std::int64_t row = first / cols + own; row * cols < end; row += warps) {
    const std::int64_t from = max(first, row * cols);
    add_elements(update, part, from + threadIdx.x % 32, min(end, (row + 1) * cols), 32,
                 matrix.row_sums[row]);
  }
}

// A thread takes a column of some rows at a time.
__device__ void add_cols(const DeviceUpdate& update, const Part& part) {
  constexpr std::int64_t rows_at_once = 128;
  const FactoredMatrix& matrix = part.tensor.matrix;
  const std::int64_t first = part.tensor.first, end = first + part.count, cols = matrix.cols;
  const std::int64_t blocks = (matrix.rows + rows_at_once - 1) / rows_at_once;
  for_elements(matrix.batch * blocks * cols, [&](std::int64_t item) {
    const std::int64_t col = item % cols, block = item / cols % blocks;
    const std::int64_t batch = item / cols / blocks;
    const std::int64_t row = batch * matrix.rows + block * rows_at_once;
    const std::int64_t last =
        min(row + rows_at_once, (batch + 1) * matrix.rows);  // not a row of another batch
    std::int64_t at = row * cols + col;
    if (at < first) at += (first - at + cols - 1) / cols * cols;
    const std::int64_t to = min(end, last * cols);
    if (at < to) add_elements(update, part, at, to, cols, matrix.col_sums[batch * cols + col]);
  });
}

__global__ void __launch_bounds__(threads)
    factor_sums_kernel(DeviceUpdate update, const StepDecision* decision) {
  if (decision->apply == 0) return;
  for (int number = blockIdx.y; number < update.range_count; number += gridDim.y) {
    const Part part(update, number);
    if (part.count <= 0) continue;
    add_rows(update, part);
    add_cols(update, part);
  }
}

__global__ void __launch_bounds__(threads)
    moments_kernel(DeviceUpdate update, FactoredMatrix matrix, const StepDecision* decision) {
  if (decision->apply == 0) return;
  const auto factors = factors_of<AdafactorRule>(update, *decision, update.group);
  for_elements(matrix.all_rows() + matrix.all_cols(), [&](std::int64_t at) {
    if (at < matrix.all_rows()) {
      matrix.row_var[at] =
          moment_after(factors, matrix.row_sums[at], matrix.cols, matrix.row_var[at]);
      return;
    }
    at -= matrix.all_rows();
    matrix.col_var[at] =
        moment_after(factors, matrix.col_sums[at], matrix.rows, matrix.col_var[at]);
    matrix.col_scale[at] = scale_of_col(matrix.col_var[at]);
  });
}

// A block takes a matrix of the batch at a time.
__global__ void __launch_bounds__(threads)
    scales_kernel(DeviceUpdate update, FactoredMatrix matrix, const StepDecision* decision) {
  static_assert(threads == moment_lanes);
  __shared__ double sums[moment_lanes];
  if (decision->apply == 0) return;
  const auto factors = factors_of<AdafactorRule>(update, *decision, update.group);
  for (std::int64_t batch = blockIdx.x; batch < matrix.batch; batch += gridDim.x) {
    const float* moments = matrix.row_var + batch * matrix.rows;
    __syncthreads();
    sums[threadIdx.x] = sum_of_lane(moments, matrix.rows, static_cast<int>(threadIdx.x));
    __syncthreads();
    double sum = 0;
    for (int lane = 0; lane < moment_lanes; ++lane) sum += sums[lane];
    const double mean = sum / static_cast<double>(matrix.rows);
    for (std::int64_t row = threadIdx.x; row < matrix.rows; row += threads)
      matrix.row_scale[batch * matrix.rows + row] = scale_of_row(factors, mean, moments[row]);
  }
}

// Returns the direction of an element of the update.
__device__ float direction_at(const DeviceUpdate& update, const Part& part, const Factors& factors,
                              std::int64_t at) {
  const FactoredMatrix& matrix = part.tensor.matrix;
  const std::int64_t element = part.tensor.first + at - part.begin;
  const std::int64_t row = element / matrix.cols, col = element % matrix.cols;
  return direction_of(factors, load_one(update.gradient, update.gradient_dtype, at),
                      matrix.row_scale[row],
                      matrix.col_scale[row / matrix.rows * matrix.cols + col]);
}

__device__ void measure_part(const DeviceUpdate& update, const Part& part, const Factors& factors,
                             TensorSums& sums) {
  BlockSum parameters, directions;
  for (std::int64_t tile = blockIdx.x; tile * norm_tile < part.count; tile += gridDim.x) {
    Tile parameter, direction;
    for (int l = 0; l < tile_lanes; ++l)
      for (int i = 0; i < lane_elements; ++i) {
        const std::int64_t at = lane_at(tile, l) + i;
        const bool inside = at < part.count;
        parameter.put(l, i,
                      inside ? load_one(update.master, update.master_dtype, part.begin + at) : 0,
                      inside, parameters.non_finite);
        direction.put(l, i, inside ? direction_at(update, part, factors, part.begin + at) : 0,
                      inside, directions.non_finite);
      }
    add_tile<float>(parameter.values, parameter.finite, parameters.limbs);
    add_tile<float>(direction.values, direction.finite, directions.limbs);
  }
  parameters.add_to(sums.parameter);
  directions.add_to(sums.direction);
}

__global__ void __launch_bounds__(threads)
    measure_factored_kernel(DeviceUpdate update, TensorSums* sums, const StepDecision* decision) {
  if (decision->apply == 0) return;
  for (int number = blockIdx.y; number < update.range_count; number += gridDim.y) {
    const Part part(update, number);
    measure_part(update, part, factors_of<AdafactorRule>(update, *decision, part.group),
                 sums[update.ranges[number].tensor]);
  }
}

__global__ void __launch_bounds__(threads)
    update_factored_kernel(DeviceUpdate update, const StepDecision* decision) {
  if (decision->apply == 0) return;
  for (int number = blockIdx.y; number < update.range_count; number += gridDim.y) {
    const Part part(update, number);
    auto factors = factors_of<AdafactorStepRule>(update, *decision, part.group);
    factors.step = update.steps[number];
    factors.decay = update.decays[number];
    for_elements(part.count, [&](std::int64_t i) {
      const std::int64_t at = part.begin + i;
      float* no_states = nullptr;
      const float before = load_one(update.master, update.master_dtype, at);
      float master = before;
      AdafactorStepRule::apply(factors, direction_at(update, part, factors, at), master, no_states);
      store_updated(update, at, before, master);
    });
  }
}

// Blocks for all ranges, each range by several.
dim3 blocks_of(const DeviceUpdate& update) {
  constexpr std::int64_t most_tile_blocks = 64, most_range_blocks = 65535;
  const std::int64_t tiles = (update.count + norm_tile - 1) / norm_tile;
  return dim3(static_cast<unsigned>(std::min(tiles, most_tile_blocks)),
              static_cast<unsigned>(std::min<std::int64_t>(update.range_count, most_range_blocks)));
}

}  // namespace

void launch_factor_sums(const DeviceUpdate& update, const StepDecision* decision, Stream stream) {
  launch(Launch{"factor_sums_kernel", blocks_of(update), threads, native(stream)},
         factor_sums_kernel, update, decision);
}

void launch_moments(const DeviceUpdate& update, const FactoredMatrix& matrix,
                    const StepDecision* decision, Stream stream) {
  launch_over("moments_kernel", matrix.all_rows() + matrix.all_cols(), stream, moments_kernel,
              update, matrix, decision);
  launch_over("scales_kernel", matrix.batch * threads, stream, scales_kernel, update, matrix,
              decision);
}

void launch_measure_factored(const DeviceUpdate& update, TensorSums* sums,
                             const StepDecision* decision, Stream stream) {
  launch(Launch{"measure_factored_kernel", blocks_of(update), threads, native(stream)},
         measure_factored_kernel, update, sums, decision);
}

void launch_update_factored(const DeviceUpdate& update, const StepDecision* decision,
                            Stream stream) {
  launch(Launch{"update_factored_kernel", blocks_of(update), threads, native(stream)},
         update_factored_kernel, update, decision);
}

}  // namespace zero::optim::cuda
