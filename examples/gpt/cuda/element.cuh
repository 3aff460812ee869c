// Launches of the model's kernels, and access to rows: stored as T, computed in fp32, eight
// elements per thread at a time if rows are aligned. Sums over a warp have a fixed order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "examples/gpt/cuda/check.h"
#include "zero/base/dtype.h"

namespace gpt::cuda {

struct Launch {
  const char* name;  // for messages
  dim3 blocks;
  unsigned threads;  // per block
  cudaStream_t stream;
  std::size_t block_memory = 0;  // dynamic shared memory, in bytes
};

template <class... Parameters>
void launch(const Launch& how, void (*kernel)(Parameters...),
            const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = how.blocks;
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.block_memory;
  config.stream = how.stream;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), how.name);
}

// The dynamic shared memory of a block, whose size is set at the launch.
template <class T>
__device__ inline T* block_memory() {
  extern __shared__ uint4 shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}

inline constexpr int warp_lanes = 32;
inline constexpr int pack_elements = 8;

template <class T>
struct alignas(16) Aligned {
  T values[16 / sizeof(T)];
};

// Returns the sum over a warp, on all lanes.
__device__ inline float warp_sum(float value) {
  for (int apart = warp_lanes / 2; apart > 0; apart /= 2)
    value += __shfl_xor_sync(~0u, value, apart);
  return value;
}

// Elements of a row that a thread loads at once, with zeros after the row's end.
struct Pack {
  float values[pack_elements];
  int count;
};

// Returns whether every row starts at an aligned address, given that the array does.
template <class T>
__device__ inline bool rows_are_aligned(std::int64_t columns) {
  return columns * sizeof(T) % 16 == 0;
}

// Loads a whole pack from an aligned address.
template <class T>
__device__ inline Pack load_whole(const T* from) {
  Pack pack;
  pack.count = pack_elements;
  constexpr int wide = 16 / sizeof(T);
  for (int i = 0; i < pack_elements; i += wide) {
    const Aligned<T> part = *reinterpret_cast<const Aligned<T>*>(from + i);
    for (int k = 0; k < wide; ++k) pack.values[i + k] = zero::to_float(part.values[k]);
  }
  return pack;
}
template <class T>
__device__ inline void store_whole(const Pack& pack, T* to) {
  constexpr int wide = 16 / sizeof(T);
  for (int i = 0; i < pack_elements; i += wide) {
    Aligned<T> part;
    for (int k = 0; k < wide; ++k) part.values[k] = zero::from_float<T>(pack.values[i + k]);
    // memcpy, because nvcc may split an assignment into stores of 16 bits.
    uint4 words;
    memcpy(&words, &part, sizeof words);
    __stwb(reinterpret_cast<uint4*>(to + i), words);
  }
}

template <class T>
__device__ inline Pack load_pack(const T* row, std::int64_t at, std::int64_t columns) {
  const std::int64_t left = columns - at;
  if (left >= pack_elements && rows_are_aligned<T>(columns)) return load_whole(row + at);
  Pack pack;
  pack.count = left < pack_elements ? static_cast<int>(left) : pack_elements;
  for (int i = 0; i < pack_elements; ++i)
    pack.values[i] = i < pack.count ? zero::to_float(row[at + i]) : 0.0f;
  return pack;
}

template <class T>
__device__ inline void store_pack(const Pack& pack, T* row, std::int64_t at, std::int64_t columns) {
  if (pack.count == pack_elements && rows_are_aligned<T>(columns))
    return store_whole(pack, row + at);
  for (int i = 0; i < pack_elements; ++i)  // of fixed length, so that packs stay in registers
    if (i < pack.count) row[at + i] = zero::from_float<T>(pack.values[i]);
}

// Calls body(at) with the first element of each pack of the calling thread, one of `threads` that
// share a row.
template <class Body>
__device__ inline void for_packs(int thread, int threads, std::int64_t columns, const Body& body) {
  for (std::int64_t at = std::int64_t{thread} * pack_elements; at < columns;
       at += std::int64_t{threads} * pack_elements)
    body(at);
}

// Returns the number of packs for this many elements; the last may be incomplete.
__host__ __device__ inline std::int64_t packs_of(std::int64_t elements) {
  return (elements + pack_elements - 1) / pack_elements;
}

inline unsigned blocks_of(std::int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace gpt::cuda
