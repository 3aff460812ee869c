// The launch shapes of the kernels of wire formats.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "comm/cuda/lane.cuh"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/launch.h"

namespace zero::comm::wire {

using comm::cuda::Lane;
using zero::cuda::Launch;
using zero::cuda::launch;
using zero::cuda::native;

inline constexpr int threads = 256, lanes = 32;
inline constexpr std::int64_t most_blocks = 4096;

// Launches a warp per `work` item, or per several items if there are too many.
inline Launch over_warps(const char* name, std::int64_t work, Stream stream) {
  const std::int64_t blocks = (work * lanes + threads - 1) / threads;
  return {name, dim3(static_cast<unsigned>(std::min(blocks, most_blocks))), threads,
          native(stream)};
}

// Launches a thread per lane of several elements, or per several lanes if there are too many.
inline Launch over_lanes(const char* name, std::int64_t count, Stream stream) {
  return over_warps(name, (count + Lane::size * lanes - 1) / (Lane::size * lanes), stream);
}

// Calls body(i) for the elements that are this thread's.
template <class Body>
__device__ void for_elements(std::int64_t count, const Body& body) {
  const std::int64_t step = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x; i < count; i += step)
    body(i);
}

}  // namespace zero::comm::wire
