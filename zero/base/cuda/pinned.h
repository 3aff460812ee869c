// Page-locked host memory of exactly the size asked for, on the NUMA node of a GPU where the
// machine allows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace zero::cuda {

// Zeroed. Where the node is unknown or refused, one line on stderr says so, once per process.
// Throws MemoryError.
std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name);

}  // namespace zero::cuda
