// Memory of the host that the planner runs on.
#pragma once

#include <cstdint>

namespace zero::planner {

// Bytes that a new allocation could take, by the system and its control groups.
std::int64_t available_host_memory();

}  // namespace zero::planner
