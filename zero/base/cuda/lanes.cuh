// Accesses eight elements of a thread at a time, in accesses of 16 bytes; or four, in accesses of
// 16 bytes of fp32 and of 8 of a 16-bit type. Addresses are multiples of the size of an access.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "zero/base/dtype.h"

namespace zero::cuda {

inline constexpr int lane_elements = 8;

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

// 16-bit elements, for a single access.
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

// Whether an array at this address can be accessed by lanes.
template <class T>
__device__ inline bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace zero::cuda
