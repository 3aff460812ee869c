// Newton-Schulz on a device: as orthogonalize.h, with its bits, queued on a stream.
#pragma once

#include "optim/device_kernels.h"
#include "optim/orthogonalize.h"

namespace zero::optim {

// All memory is the device's; `norm` holds a word of its own.
struct DeviceMatrix {
  MatrixShape shape;
  float* values = nullptr;
  float* scratch = nullptr;  // scratch_elements()
  NormSum* norm = nullptr;
};

void orthogonalize(DeviceKernels& kernels, NewtonSchulz iteration, const DeviceMatrix& matrix,
                   Stream stream);

}  // namespace zero::optim
