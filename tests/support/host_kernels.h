// Kernels of a device over host memory, on the calling thread, element by element: for tests of
// what a device is asked to do.
#pragma once

#include "optim/device_kernels.h"

namespace zero::optim {

std::unique_ptr<DeviceKernels> create_host_kernels();

}  // namespace zero::optim
