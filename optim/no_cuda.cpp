#include "optim/device_kernels.h"
#include "zero/base/error.h"

namespace zero::optim {

std::unique_ptr<DeviceKernels> create_cuda_kernels() {
  throw TopologyError("the optimizer's kernels for GPUs are not in this build: ZERO_CUDA was off");
}

}  // namespace zero::optim
