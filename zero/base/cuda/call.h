// Calls of the CUDA runtime by name, under the device's watch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "zero/base/cuda/call_watch.h"
#include "zero/base/cuda/check.h"

namespace zero::cuda {

// Returns what the function does.
template <class... Parameters>
cudaError_t result_of(const char* name, cudaError_t (*function)(Parameters...),
                      std::type_identity_t<Parameters>... arguments) {
  const InCall inside(name);
  return function(arguments...);
}

// Throws as check().
template <class... Parameters>
void call_cuda(const char* name, cudaError_t (*function)(Parameters...),
               std::type_identity_t<Parameters>... arguments) {
  check(result_of(name, function, arguments...), name);
}

// Queues a copy between memory of the host and GPUs; throws as check().
inline void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  // The type chooses among the overloads of CUDA 13.2.
  cudaError_t (*copy)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) =
      cudaMemcpyAsync;
  call_cuda("cudaMemcpyAsync", copy, to, from, bytes, cudaMemcpyDefault, stream);
}

// For destructors, as note().
template <class... Parameters>
void call_cuda_quietly(const char* name, cudaError_t (*function)(Parameters...),
                       std::type_identity_t<Parameters>... arguments) noexcept {
  note(result_of(name, function, arguments...), name);
}

}  // namespace zero::cuda
