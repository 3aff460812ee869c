// The GPU of a rank, without naming the vendor. A program that does not link the CUDA back end
// (ZeroCore::cuda) has no GPU, and its error messages state that.
#pragma once

#include <memory>

#include "zero/base/device.h"

namespace zero {

// GPUs that this process sees; 0 without a driver.
int gpu_count() noexcept;

// Whether NVIDIA's driver is too old for the CUDA runtime of this program: gpu_count() is 0 then,
// and create_gpu() names both versions.
bool driver_is_too_old() noexcept;

// Returns GPU number `local_rank` modulo gpu_count(), and makes it current on the calling thread.
// Throws TopologyError, in one line, if there is none. `may_exit`: a CUDA call that does not return
// within the device's time limit ends the process, after a line with the call's name; otherwise
// only that line is printed.
std::unique_ptr<Device> create_gpu(int local_rank, bool may_exit = false);

}  // namespace zero
