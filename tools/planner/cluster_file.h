// Reads devices from JSON files: {"like": "h100", "name": "...", "product_share": 0.7, ...}. Keys
// are the names of Device's members; those of links are "inside_rate", "inside_latency" and so on.
#pragma once

#include <string>

#include "tools/planner/cluster.h"

namespace zero::planner {

// Throws ConfigError with the file, the key and the expected value.
Device read_device(const std::string& file);

}  // namespace zero::planner
