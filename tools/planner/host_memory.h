// The memory of the host on which the planner runs.
#pragma once

#include <cstdint>

namespace zero::planner {

// Returns the bytes that a new allocation could take, within the system and its control groups.
std::int64_t available_host_memory();

}  // namespace zero::planner
