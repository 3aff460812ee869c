// Devices in JSON files: {"like": "h100", "name": "...", "product_share": 0.7, ...}, each key a
// member of Device by its name, those of links as "inside_rate" and "inside_latency".
#pragma once

#include <string>

#include "tools/planner/cluster.h"

namespace zero::planner {

// Throws ConfigError with the file, the key and what it expects.
Device read_device(const std::string& file);

}  // namespace zero::planner
