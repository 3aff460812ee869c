// The norm of a gradient.
#include "optim/cuda/norm_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "optim/cuda/block_sum.cuh"

namespace zero::optim::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(threads)
    norm_kernel(const T* gradient, std::int64_t count, NormSum* to) {
  BlockSum sum;
  for (std::int64_t tile = blockIdx.x; tile * norm_tile < count; tile += gridDim.x) {
    Tile own;
    for (int l = 0; l < tile_lanes; ++l) {
      const std::int64_t at = lane_at(tile, l);
      const bool whole = at + lane_elements <= count;
      float values[lane_elements];
      if (whole) load_lane(gradient + at, values);
      for (int i = 0; i < lane_elements; ++i) {
        const bool inside = whole || at + i < count;
        if (!whole) values[i] = inside ? to_float(gradient[at + i]) : 0.0f;
        own.put(l, i, values[i], inside, sum.non_finite);
      }
    }
    add_tile<T>(own.values, own.finite, sum.limbs);
  }
  sum.add_to(*to);
}

}  // namespace

void launch_norm(const void* values, DType dtype, std::int64_t count, NormSum* sum, Stream stream) {
  const std::int64_t tiles = (count + norm_tile - 1) / norm_tile;
  if (tiles == 0) return;
  const int blocks = static_cast<int>(std::min<std::int64_t>(tiles, most_blocks));
  with_float_type(dtype, [&]<class T>() {
    launch(Launch{"norm_kernel", dim3(blocks), threads, native(stream)}, norm_kernel<T>,
           static_cast<const T*>(values), count, sum);
  });
}

}  // namespace zero::optim::cuda
