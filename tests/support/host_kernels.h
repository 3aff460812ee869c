// The host's kernels on the calling thread alone, for tests of calls to a device.
#pragma once

#include "optim/device_kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::optim {

inline std::unique_ptr<DeviceKernels> create_host_kernels() {
  static ThreadPool one_thread(1);
  return create_host_kernels(one_thread);
}

}  // namespace zero::optim
