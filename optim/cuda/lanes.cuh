// Array access of an optimizer step's kernels: each thread moves eight elements at a time in
// 16-byte accesses, or four, in 16-byte accesses of fp32 and 8-byte accesses of a 16-bit type.
// Arrays start at multiples of 256 bytes and counts are multiples of 128.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/lanes.cuh"
#include "zero/base/cuda/launch.h"
#include "zero/base/dtype.h"

namespace zero::optim::cuda {

inline constexpr int threads = 256;
inline constexpr int most_blocks = 2048;

using zero::cuda::lane_elements;
using zero::cuda::load_lane;
using zero::cuda::store_lane;
using zero::cuda::Launch;
using zero::cuda::launch;
using zero::cuda::native;

// Launches a thread per item, or per several items if there are too many. Launches nothing if there
// are no items.
template <class... Parameters>
void launch_over(const char* name, std::int64_t items, Stream stream, void (*kernel)(Parameters...),
                 const std::type_identity_t<Parameters>&... arguments) {
  if (items == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((items + threads - 1) / threads, most_blocks));
  launch(Launch{name, dim3(blocks), threads, native(stream)}, kernel, arguments...);
}
// Launch of a single thread.
inline Launch once(const char* name, Stream stream) {
  return {name, dim3(1), 1, native(stream)};
}

template <int elements = lane_elements>
__device__ inline void load_lane(const void* from, DType dtype, std::int64_t at, float* to) {
  with_float_type(dtype,
                  [&]<class T>() { load_lane<elements>(static_cast<const T*>(from) + at, to); });
}

template <int elements = lane_elements>
__device__ inline void store_lane(const float* from, void* to, DType dtype, std::int64_t at) {
  with_float_type(dtype, [&]<class T>() { store_lane<elements>(from, static_cast<T*>(to) + at); });
}

// Calls body(at) with the first element of every lane of the calling thread.
template <int elements = lane_elements, class Body>
__device__ inline void for_lanes(std::int64_t count, const Body& body) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads * elements;
  for (std::int64_t at = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * elements; at < count;
       at += stride)
    body(at);
}

// Loads an element of an array without alignment.
__device__ inline float load_one(const void* from, DType dtype, std::int64_t at) {
  return with_float_type(dtype,
                         [&]<class T>() { return to_float(static_cast<const T*>(from)[at]); });
}

__device__ inline void store_one(float value, void* to, DType dtype, std::int64_t at) {
  with_float_type(dtype, [&]<class T>() { static_cast<T*>(to)[at] = from_float<T>(value); });
}

// Calls body(at) for every element of the calling thread.
template <class Body>
__device__ void for_elements(std::int64_t count, const Body& body) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x; at < count; at += stride)
    body(at);
}

}  // namespace zero::optim::cuda
