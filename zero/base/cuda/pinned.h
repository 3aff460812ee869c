// Page-locked host memory of exactly the requested size, on the NUMA node of a GPU where the
// machine allows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/base/device_waits.h"

namespace zero::cuda {

// Zeroed. Where the node is unknown or refused, one line on stderr says so, once per process.
// Throws MemoryError. It stays where `waits`, which outlives it, says that the device is stalled.
std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name,
                                      const DeviceWaits& waits);

}  // namespace zero::cuda
