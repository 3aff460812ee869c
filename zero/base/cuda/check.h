// Turns errors of the CUDA runtime into exceptions.
#pragma once

#include <cuda_runtime_api.h>

namespace zero::cuda {

// Throws if `error` is an error: MemoryError for memory, TopologyError if there is no usable GPU,
// otherwise Error. A device fault makes every later call fail, so the first cause is kept and
// reported every time.
void check(cudaError_t error, const char* call);

// For destructors: records the first cause without throwing.
void note(cudaError_t error, const char* call) noexcept;

}  // namespace zero::cuda
