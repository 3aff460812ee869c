// Calls of CUDA's runtime that turn errors into exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "zero/base/error.h"

namespace gpt::cuda {

// Throws MemoryError if memory is exhausted, otherwise Error.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  const std::string text =
      std::string(call) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  static_cast<void>(cudaGetLastError());  // otherwise the next launch would report it once more
  if (error != cudaErrorMemoryAllocation) throw zero::Error(text);
  throw zero::MemoryError(text);
}

}  // namespace gpt::cuda
