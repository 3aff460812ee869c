// Kernels on the host: a file of CUDA is compiled as C++, and every block of a launch runs as
// fibers that meet at barriers and exchange values within their warp. One launch at a time.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "cuda_runtime_api.h"
#include "zero/base/dtype.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
// Thread-local, since one block runs at a time, on the thread that launches it. Applies to extern
// arrays too.
#define __shared__ constinit thread_local

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

// Aligned to their size, as the GPU demands.
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
namespace cuda_on_host {
// Returns the GPU's NaN for the host's, since an operation that makes a NaN gives 0xffc00000 on x86
// and 0x7fffffff on a GPU.
inline float stored(float value) {
  return std::bit_cast<std::uint32_t>(value) == 0xffc00000u ? std::bit_cast<float>(0x7fffffffu)
                                                            : value;
}
}  // namespace cuda_on_host
// Hide zero::from_float() from the kernels, since they use it to round stored values.
namespace zero::cuda {
template <class T>
T from_float(float value) {
  return zero::from_float<T>(cuda_on_host::stored(value));
}
}  // namespace zero::cuda
namespace zero::comm::cuda {
using zero::cuda::from_float;
}
namespace zero::optim::cuda {
using zero::cuda::from_float;
}
inline float4 make_float4(float x, float y, float z, float w) {
  using cuda_on_host::stored;
  return {stored(x), stored(y), stored(z), stored(w)};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline void __stwb(uint4* to, uint4 value) {
  *to = value;
}

namespace cuda_on_host {

// Runs thread() for every thread of every block.
cudaError_t run(dim3 blocks, dim3 threads, const std::function<void()>& thread);
void wait_for_block();
// Returns the value that the thread of the mask whose lane differs by these bits passed to the same
// call.
std::uint64_t exchanged(unsigned mask, std::uint64_t value, int lanes_apart);

}  // namespace cuda_on_host

inline void __syncthreads() {
  cuda_on_host::wait_for_block();
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes_apart) {
  return static_cast<T>(cuda_on_host::exchanged(mask, value, lanes_apart));
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline float __shfl_xor_sync(unsigned mask, float value, int lanes_apart) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(
      cuda_on_host::exchanged(mask, std::bit_cast<std::uint32_t>(value), lanes_apart)));
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline int __popc(unsigned value) {
  return std::popcount(value);
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
// Needs no atomics, because fibers switch only at barriers.
template <class T>
T atomicAdd(T* sum, T value) {
  const T before = *sum;
  *sum += value;
  return before;
}
inline unsigned atomicOr(unsigned* bits, unsigned value) {
  return std::exchange(*bits, *bits | value);
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int bytes) {
  return bytes > most_shared_memory ? cudaErrorInvalidValue : cudaSuccess;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  if (const cudaError_t fault = cuda_on_host::met("cudaLaunchKernelExC")) return fault;
  if (config->dynamicSmemBytes > most_shared_memory) return cudaErrorInvalidValue;
  return cuda_on_host::run(config->gridDim, config->blockDim, [&] { kernel(arguments...); });
}
