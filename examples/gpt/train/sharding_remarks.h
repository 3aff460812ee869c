// Finds variants that shard more but take no less memory, because slots outweigh the savings: by
// how much, and from how many layers on that changes. Computed from the engine's own plans.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/train/task.h"

namespace gpt {

// Returns a sentence or two for each; variants that offload are left out. Names belong to the
// tasks, in order.
std::vector<std::string> sharding_remarks(const std::vector<std::string>& names,
                                          const std::vector<Task>& tasks, int ranks, bool on_gpu);

}  // namespace gpt
