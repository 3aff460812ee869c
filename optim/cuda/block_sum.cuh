// Exact sums of squares over tiles, by thread block. Since the sums are of integers, no result
// depends on the order of threads.
#pragma once

#include "optim/cuda/lanes.cuh"
#include "optim/device_kernels.h"

namespace zero::optim::cuda {

inline constexpr int tile_lanes = norm_tile / (threads * lane_elements);  // per thread
static_assert(tile_lanes * threads * lane_elements == norm_tile);

// Returns the range of a block's values in all threads of the block.
__device__ inline MagnitudeRange range_of_block(MagnitudeRange own) {
  __shared__ MagnitudeRange warps[threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    own.largest = max(own.largest, __shfl_xor_sync(~0u, own.largest, offset));
    own.smallest = min(own.smallest, __shfl_xor_sync(~0u, own.smallest, offset));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  MagnitudeRange all = warps[0];
  for (int w = 1; w < threads / 32; ++w) {
    all.largest = max(all.largest, warps[w].largest);
    all.smallest = min(all.smallest, warps[w].smallest);
  }
  return all;
}

// Returns the sum over the block; valid only in thread 0.
__device__ inline unsigned long long sum_of_block(unsigned long long own) {
  __shared__ unsigned long long warps[threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(~0u, own, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  unsigned long long sum = 0;
  for (int w = 0; w < threads / 32; ++w) sum += warps[w];
  return sum;
}

template <class T>
__device__ void add_tile(const float (*values)[lane_elements], unsigned finite_lanes,
                         std::int64_t* limbs) {
  MagnitudeRange own;
  for (int l = 0; l < tile_lanes; ++l)
    for (int i = 0; i < lane_elements; ++i) own.include(values[l][i]);
  const MagnitudeRange range = range_of_block(own);
  if (range.largest == 0) return;
  const SquareUnits units = units_of<T>(range);
  with_units(units, [&]<int unit_count, bool cut>() {
    std::uint64_t counts[unit_count] = {};
    for (int l = 0; l < tile_lanes; ++l)
      for (int i = 0; i < lane_elements; ++i)
        if (finite_lanes >> (l * lane_elements + i) & 1u)
          add_square<unit_count, cut>(values[l][i], units.lowest, counts);
    const unsigned long long added = sum_of_block(__popc(finite_lanes));
    for (int k = 0; k < unit_count; ++k) {
      const unsigned long long sum = sum_of_block(counts[k]);
      if (threadIdx.x == 0) add_unit(sum, added, units.lowest + k * norm_unit_bits, limbs);
    }
  });
  if (threadIdx.x == 0) carry_limbs(limbs);
}

// Values of a tile that a thread holds. Values that are not finite are counted separately.
struct Tile {
  float values[tile_lanes][lane_elements];
  unsigned finite = 0;

  __device__ void put(int lane, int i, float value, bool inside, unsigned long long& non_finite) {
    const bool counts = inside && is_finite_value(value);
    if (inside && !counts) ++non_finite;
    if (counts) finite |= 1u << (lane * lane_elements + i);
    values[lane][i] = counts ? value : 0;
  }
};
static_assert(tile_lanes * lane_elements <= 32);

__device__ inline std::int64_t lane_at(std::int64_t tile, int lane) {
  return tile * norm_tile + (std::int64_t{lane} * threads + threadIdx.x) * lane_elements;
}

// Sum over the tiles of a block.
struct BlockSum {
  std::int64_t limbs[norm_limb_count] = {};  // in thread 0
  unsigned long long non_finite = 0;         // of each thread

  // Adds to the total; call from all threads. Carried limbs of up to 2^23 blocks add up without
  // overflow; the reader carries the total once more.
  __device__ void add_to(NormSum& sum) const {
    const unsigned long long left_out = sum_of_block(non_finite);
    if (threadIdx.x != 0) return;
    for (int k = 0; k < norm_limb_count; ++k)
      if (limbs[k] != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(sum.limbs + k),
                  static_cast<unsigned long long>(limbs[k]));
    if (left_out != 0) atomicAdd(reinterpret_cast<unsigned long long*>(&sum.non_finite), left_out);
  }
};

}  // namespace zero::optim::cuda
