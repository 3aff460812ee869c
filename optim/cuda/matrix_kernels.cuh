// Kernels of orthogonalization; see orthogonalize.h.
#pragma once

#include <cmath>

#include "optim/cuda/lanes.cuh"
#include "optim/product.h"

namespace zero::optim::cuda {

inline constexpr int tile = 64, depth_block = 16;
inline constexpr int of_thread = 4, side = tile / of_thread;  // each thread has a square
static_assert(side * side == threads);

// Rows of a and columns of b, for a block of the depth.
struct Panels {
  float left[depth_block][tile], right[depth_block][tile];

  __device__ void load(const Product& p, std::int64_t rows, std::int64_t row, std::int64_t col,
                       std::int64_t depth) {
    for (int i = threadIdx.x; i < tile * depth_block; i += threads) {
      const int k = i % depth_block, r = i / depth_block;
      const bool deep = depth + k < p.depth;
      left[k][r] = deep && row + r < rows ? p.a[(row + r) * p.depth + depth + k] : 0;
      if (p.transposed) {
        right[k][r] = deep && col + r < p.cols ? p.b[(col + r) * p.depth + depth + k] : 0;
      } else {
        const int c = i % tile, k_of_b = i / tile;
        right[k_of_b][c] = depth + k_of_b < p.depth && col + c < p.cols
                               ? p.b[(depth + k_of_b) * p.cols + col + c]
                               : 0;
      }
    }
  }
};

// Applies the scale and the addend to an element's finished sum.
__device__ inline float finished_element(const Product& product, float sum, std::int64_t row,
                                         std::int64_t col) {
  sum = product.scale * sum;
  if (product.add == nullptr) return sum;
  return fmaf(product.add_scale, product.add[row * product.cols + col], sum);
}

__device__ inline void product_tile(const Product& p, std::int64_t rows, std::int64_t row,
                                    std::int64_t col) {
  __shared__ Panels panels;
  const int x = threadIdx.x % side * of_thread, y = threadIdx.x / side * of_thread;
  float sums[of_thread][of_thread] = {};
  for (std::int64_t depth = 0; depth < p.depth; depth += depth_block) {
    __syncthreads();
    panels.load(p, rows, row, col, depth);
    __syncthreads();
    // Stops at the depth, because adding 0 * 0 beyond would turn -0 into 0.
    const int length = static_cast<int>(min(std::int64_t{depth_block}, p.depth - depth));
    for (int k = 0; k < length; ++k)
      for (int r = 0; r < of_thread; ++r)
        for (int c = 0; c < of_thread; ++c)
          sums[r][c] = fmaf(panels.left[k][y + r], panels.right[k][x + c], sums[r][c]);
  }
  for (int r = 0; r < of_thread; ++r)
    for (int c = 0; c < of_thread; ++c)
      if (row + y + r < rows && col + x + c < p.cols)
        p.out[(row + y + r) * p.cols + col + x + c] =
            finished_element(p, sums[r][c], row + y + r, col + x + c);
}

static __global__ void __launch_bounds__(threads) product_kernel(Product p, std::int64_t rows) {
  for (std::int64_t row = std::int64_t{blockIdx.y} * tile; row < rows;
       row += std::int64_t{gridDim.y} * tile)
    product_tile(p, rows, row, std::int64_t{blockIdx.x} * tile);
}

static __global__ void __launch_bounds__(threads)
    transpose_kernel(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
  for_elements(rows * cols, [&](std::int64_t at) { to[at % cols * rows + at / cols] = from[at]; });
}

static __global__ void __launch_bounds__(threads)
    diagonal_kernel(float* matrix, std::int64_t edge, float value) {
  for_elements(edge, [&](std::int64_t i) { matrix[i * edge + i] += value; });
}

}  // namespace zero::optim::cuda
