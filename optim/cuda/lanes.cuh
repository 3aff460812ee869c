// How the kernels of a step reach their arrays: eight elements of a thread at a time, in accesses
// of 16 bytes; or four, in accesses of 16 bytes of fp32 and of 8 of a 16-bit type. Starts of arrays
// are aligned to 256 bytes and counts are multiples of 128.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/launch.h"
#include "zero/base/dtype.h"

namespace zero::optim::cuda {

inline constexpr int threads = 256;
inline constexpr int lane_elements =
    8;  // per thread and access: 32 bytes of fp32, 16 of a 16-bit type
inline constexpr int most_blocks = 2048;

using zero::cuda::Launch;
using zero::cuda::launch;
using zero::cuda::native;

// A thread per item, or every so many; no launch where there are none.
template <class... Parameters>
void launch_over(const char* name, std::int64_t items, Stream stream, void (*kernel)(Parameters...),
                 const std::type_identity_t<Parameters>&... arguments) {
  if (items == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>((items + threads - 1) / threads, most_blocks));
  launch(Launch{name, dim3(blocks), threads, native(stream)}, kernel, arguments...);
}
// One thread.
inline Launch once(const char* name, Stream stream) {
  return {name, dim3(1), 1, native(stream)};
}

template <int elements = lane_elements>
__device__ inline void load_lane(const float* from, float* to) {
  for (int i = 0; i < elements; i += 4) {
    const float4 part = *reinterpret_cast<const float4*>(from + i);
    to[i] = part.x, to[i + 1] = part.y, to[i + 2] = part.z, to[i + 3] = part.w;
  }
}

template <int elements = lane_elements>
__device__ inline void store_lane(const float* from, float* to) {
  for (int i = 0; i < elements; i += 4)
    *reinterpret_cast<float4*>(to + i) =
        make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
}

// Of 16-bit elements, as one access.
template <int elements>
struct alignas(2 * elements) LaneWords {
  unsigned words[elements / 2];
};

template <int elements = lane_elements, class T>
__device__ inline void load_lane(const T* from, float* to) {
  const auto packed = *reinterpret_cast<const LaneWords<elements>*>(from);
  for (int i = 0; i < elements / 2; ++i) {
    to[2 * i] = to_float(T{static_cast<std::uint16_t>(packed.words[i] & 0xffffu)});
    to[2 * i + 1] = to_float(T{static_cast<std::uint16_t>(packed.words[i] >> 16)});
  }
}

template <int elements = lane_elements, class T>
__device__ inline void store_lane(const float* from, T* to) {
  LaneWords<elements> packed;
  for (int i = 0; i < elements / 2; ++i)
    packed.words[i] = from_float<T>(from[2 * i]).bits |
                      (static_cast<unsigned>(from_float<T>(from[2 * i + 1]).bits) << 16);
  *reinterpret_cast<LaneWords<elements>*>(to) = packed;
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

// An element of an array without alignment.
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
