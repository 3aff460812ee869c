// Launches of the sums of squares for norms. Each has a file of its own, since these kernels take
// most of the compile time of an optimizer step.
#pragma once

#include <cstdint>

#include "optim/device_kernels.h"

namespace zero::optim::cuda {

// Adds to the sum.
void launch_norm(const void* values, DType dtype, std::int64_t count, NormSum* sum, Stream stream);
void launch_measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                    const StepDecision* decision, Stream stream);

}  // namespace zero::optim::cuda
