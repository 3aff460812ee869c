// Launches kernels by calls of the runtime API, without nvcc's syntax.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "zero/base/cuda/call.h"

namespace zero::cuda {

struct Launch {
  const char* name;  // for messages
  dim3 blocks;
  unsigned threads;  // per block
  cudaStream_t stream;
};

// Throws like check().
template <class... Parameters>
void launch(const Launch& how, void (*kernel)(Parameters...),
            const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = how.blocks;
  config.blockDim = dim3(how.threads);
  config.stream = how.stream;
  const InCall inside(how.name);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), how.name);
}

}  // namespace zero::cuda
