// Page-locked host memory, on the NUMA node of a GPU if the machine allows that: our own pages
// registered with CUDA, of exactly the requested size, or if registration is refused, memory of
// cudaHostAlloc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/base/device_waits.h"

namespace zero::cuda {

// Returns zeroed memory. If the node is unknown or refused, or CUDA registers no pages, a line on
// stderr reports that, once per process. Throws MemoryError. The memory is not freed if `waits`
// reports a stalled device; `waits` must outlive the memory.
std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name,
                                      const DeviceWaits& waits);

}  // namespace zero::cuda
