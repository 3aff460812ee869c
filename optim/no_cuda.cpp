#include "optim/device_kernels.h"
#include "zero/base/error.h"

namespace zero::optim {

std::unique_ptr<DeviceKernels> create_cuda_kernels() {
  throw TopologyError("the optimizer's kernels for GPUs are missing: link ZeroCore::cuda");
}

}  // namespace zero::optim
