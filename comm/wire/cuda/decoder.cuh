// Values of an encoded vector on the GPU, singly, or by lanes of eight in one access. Compiled
// without contraction.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "comm/cuda/lane.cuh"
#include "comm/wire/block_codes.h"
#include "comm/wire/layout.h"
#include "zero/base/cuda/lanes.cuh"
#include "zero/base/dtype.h"

namespace zero::comm::wire {

using comm::cuda::Lane;

template <class F>
__device__ std::uint8_t code_at(const std::uint8_t* codes, std::int64_t i) {
  if constexpr (F::bits == 8) return codes[i];
  return codes[i / 2] >> (i % 2 * 4) & 0xf;
}
// Quotients of lane numbers by the lanes of a block, by a single product: exact for numbers below
// 2^64 / divisor (Granlund and Montgomery, "Division by invariant integers using multiplication").
struct BlockOfLane {
  unsigned long long reciprocal;  // 2^64 / lanes of a block, rounded up
  explicit BlockOfLane(std::int64_t block)
      : reciprocal(~0ull / static_cast<unsigned long long>(block / Lane::size) + 1) {}
  __device__ std::int64_t operator()(std::int64_t lane) const {
    return static_cast<std::int64_t>(__umul64hi(static_cast<unsigned long long>(lane), reciprocal));
  }
};

// Codes of a lane, for a single access.
template <int bytes>
struct alignas(bytes) LaneCodes {
  std::uint8_t codes[bytes];
};

// Values of the elements of an encoded vector. Since blocks are multiples of 32 elements, a lane
// never crosses two.
template <class F>
struct Decoder {
  Encoded from;
  BlockOfLane block_of;
  Decoder(const Encoded& from, std::int64_t block) : from(from), block_of(block) {}

  __device__ float scale_of(std::int64_t lane) const {
    return F::value_of(static_cast<const typename F::Scale*>(from.scales)[block_of(lane)]);
  }
  __device__ float operator()(std::int64_t i) const {
    return scale_of(i / Lane::size) * F::unit(code_at<F>(from.codes, i));
  }
  // Returns the elements from i on, a multiple of Lane::size.
  __device__ Lane lane(std::int64_t i) const {
    constexpr int bytes = Lane::size * F::bits / 8;
    const auto own = *reinterpret_cast<const LaneCodes<bytes>*>(from.codes + i * F::bits / 8);
    const float scale = scale_of(i / Lane::size);
    Lane lane;
    for (int k = 0; k < Lane::size; ++k) lane.values[k] = scale * F::unit(code_at<F>(own.codes, k));
    return lane;
  }
};
// Formats without blocks.
template <class T>
requires requires(T element) {
  to_float(element);
}
struct Decoder<T> {
  Encoded from;
  Decoder(const Encoded& from, std::int64_t) : from(from) {}

  __device__ float operator()(std::int64_t i) const {
    return to_float(reinterpret_cast<const T*>(from.codes)[i]);
  }
  __device__ Lane lane(std::int64_t i) const {
    Lane lane;
    zero::cuda::load_lane(reinterpret_cast<const T*>(from.codes) + i, lane.values);
    return lane;
  }
};

}  // namespace zero::comm::wire
