// Measures the constants of the planner's device (tools/planner/cluster.h) on the CPU nodes of a
// job.
#pragma once

#include <string>

#include "tools/planner/cluster.h"
#include "zero/runtime.h"

namespace zero::calibrate {

// `directory`: for offload to a file; empty: not measured. Constants that are not measured are
// those of `zero plan --device cpu`. Takes less than a minute. Collective; the result is valid on
// all ranks. Throws ConfigError if the directory cannot be used.
planner::Device measure_device(Runtime& runtime, const std::string& directory);

}  // namespace zero::calibrate
