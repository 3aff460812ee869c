// Measures the error of encodings in two kernels: the sums of each block, and the total, in an
// order that depends only on the number of elements.
#pragma once

#include <bit>
#include <limits>

#include "comm/wire/codec.h"
#include "comm/wire/cuda/decoder.cuh"
#include "comm/wire/cuda/launches.cuh"

namespace zero::comm::wire {

// Sums over a block, always in the same order; thread 0 gets the result.
__device__ inline ErrorSums sum_of_block(ErrorSums own) {
  const auto fold = [](double& sum) {
    for (int apart = lanes / 2; apart > 0; apart /= 2)
      sum += std::bit_cast<double>(
          __shfl_xor_sync(~0u, std::bit_cast<unsigned long long>(sum), apart));
  };
  fold(own.difference);
  fold(own.values);
  __shared__ double warps[threads / lanes][2];
  const int warp = static_cast<int>(threadIdx.x) / lanes;
  if (threadIdx.x % lanes == 0) warps[warp][0] = own.difference, warps[warp][1] = own.values;
  __syncthreads();
  ErrorSums sum;
  for (const auto& part : warps) {
    sum.difference += part[0];
    sum.values += part[1];
  }
  return sum;
}

__device__ inline void add_error(ErrorSums& sums, float value, float decoded) {
  const double exact = static_cast<double>(value), lost = exact - static_cast<double>(decoded);
  if (!(lost * lost < static_cast<double>(std::numeric_limits<float>::infinity()))) return;
  sums.difference += lost * lost;
  sums.values += exact * exact;
}

// The sums of each block; the number of blocks depends only on the count.
template <class F, class T>
static __global__ void __launch_bounds__(threads)
    error_kernel(const T* from, Decoder<F> encoded, std::int64_t count, ErrorSums* parts) {
  ErrorSums own;
  const std::int64_t in_lanes = zero::cuda::is_aligned(from) ? count / Lane::size * Lane::size : 0;
  for_elements(in_lanes / Lane::size, [&](std::int64_t number) {
    Lane values;
    zero::cuda::load_lane(from + number * Lane::size, values.values);
    const Lane decoded = encoded.lane(number * Lane::size);
    for (int k = 0; k < Lane::size; ++k) add_error(own, values.values[k], decoded.values[k]);
  });
  for_elements(count - in_lanes, [&](std::int64_t i) {
    add_error(own, to_float(from[in_lanes + i]), encoded(in_lanes + i));
  });
  const ErrorSums sum = sum_of_block(own);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(threads)
    fold_errors_kernel(const ErrorSums* parts, int count, ErrorSums* errors) {
  ErrorSums own;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    own.difference += parts[i].difference;
    own.values += parts[i].values;
  }
  const ErrorSums sum = sum_of_block(own);
  if (threadIdx.x != 0) return;
  errors->difference += sum.difference;
  errors->values += sum.values;
}

// Adds those of an encoding to from.errors.
template <class F, class T>
void launch_errors(const T* elements, const Decoder<F>& encoded, const Elements& from,
                   Stream stream) {
  Launch blocks = over_lanes("error_kernel", from.count, stream);
  blocks.blocks.x = std::min<unsigned>(blocks.blocks.x, most_error_parts);
  launch(blocks, error_kernel<F, T>, elements, encoded, from.count, from.errors.parts);
  launch(Launch{"fold_errors_kernel", dim3(1), threads, native(stream)}, fold_errors_kernel,
         from.errors.parts, static_cast<int>(blocks.blocks.x), from.errors.sums);
}

}  // namespace zero::comm::wire
