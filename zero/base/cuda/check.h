// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

namespace zero::cuda {

// Throws where `error` is one: MemoryError for memory, TopologyError where there is no usable GPU,
// else Error. A fault of the device makes every later call fail: the first cause is kept, and is
// what all of them report.
void check(cudaError_t error, const char* call);

// For destructors: remembers a first cause, and goes on.
void note(cudaError_t error, const char* call) noexcept;

}  // namespace zero::cuda
