// Launches of the sums of squares for norms, and of the matrices whose second moment is factored.
// In separate files, since these kernels take most of the compile time of an optimizer step.
#pragma once

#include <cstdint>

#include "optim/device_kernels.h"

namespace zero::optim::cuda {

// Adds to the sum.
void launch_norm(const void* values, DType dtype, std::int64_t count, NormSum* sum, Stream stream);
void launch_measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                    const StepDecision* decision, Stream stream);
// The parts of DeviceKernels for rules that see tensor factors.
void launch_factor_sums(const DeviceUpdate& update, const StepDecision* decision, Stream stream);
void launch_moments(const DeviceUpdate& update, const FactoredMatrix& matrix,
                    const StepDecision* decision, Stream stream);
void launch_measure_factored(const DeviceUpdate& update, TensorSums* sums,
                             const StepDecision* decision, Stream stream);
void launch_update_factored(const DeviceUpdate& update, const StepDecision* decision,
                            Stream stream);

}  // namespace zero::optim::cuda
