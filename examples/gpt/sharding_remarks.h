// Where sharding more takes no less memory, since slots outweigh what it saves: which variants, by
// how much, and from how many layers on that changes. Asks the engine's own plans.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/task.h"

namespace gpt {

// A sentence or two each; variants that offload are left out. Names belong to the tasks, in order.
std::vector<std::string> sharding_remarks(const std::vector<std::string>& names,
                                          const std::vector<Task>& tasks, int ranks, bool on_gpu);

}  // namespace gpt
