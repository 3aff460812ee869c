// Distribution of rows in kernels: one row per warp.
#pragma once

#include "examples/gpt/cuda/element.cuh"

namespace gpt::cuda {

inline constexpr int threads = 256;
inline constexpr int warps = threads / warp_lanes;

__device__ inline int warp_of_block() {
  return threadIdx.x / warp_lanes;
}
__device__ inline int lane_of_warp() {
  return threadIdx.x % warp_lanes;
}
__device__ inline std::int64_t row_of_warp() {
  return std::int64_t{blockIdx.x} * warps + warp_of_block();
}
inline Launch warp_per_row(const char* name, std::int64_t rows, cudaStream_t stream) {
  return {name, dim3(blocks_of(rows, warps)), threads, stream};
}

}  // namespace gpt::cuda
