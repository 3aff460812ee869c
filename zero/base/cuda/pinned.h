// Page-locked host memory, on the NUMA node of a GPU where the machine allows it: pages of ours
// that CUDA registers, of exactly the requested size, or where it refuses that, memory of
// cudaHostAlloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/base/device_waits.h"

namespace zero::cuda {

// Zeroed. Where the node is unknown or refused, or CUDA registers no pages, one line on stderr says
// so, once per process.
// Throws MemoryError. It stays where `waits`, which outlives it, says that the device is stalled.
std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name,
                                      const DeviceWaits& waits);

}  // namespace zero::cuda
