// The memory of the host of the planner.
#pragma once

#include <cstdint>

namespace zero::planner {

// Returns the bytes that a new allocation could take, within the system and its control groups.
std::int64_t available_host_memory();

}  // namespace zero::planner
