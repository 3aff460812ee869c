// Sums of squares for norms, launched into a stream. A file each, since they are most of what the
// compiler has to do for an optimizer step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "optim/device_kernels.h"

namespace zero::optim::cuda {

// Adds to limbs and non_finite.
void launch_norm(const void* values, DType dtype, std::int64_t count, std::int64_t* limbs,
                 std::int64_t* non_finite, cudaStream_t stream);
void launch_measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                    const StepDecision* decision, cudaStream_t stream);

}  // namespace zero::optim::cuda
