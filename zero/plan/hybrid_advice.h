// Advice at the start of a training run on several nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

// Savings by a hybrid strategy, and by wire formats, if stage 3 runs on several nodes: one
// sentence; empty if the config has chosen, if one group per node is impossible, or if nothing
// would be saved. The plan is that of the config; memory_of returns a plan's bytes of state.
std::string hybrid_advice(const EnginePlan& plan, const Config& config,
                          const std::function<std::int64_t(const EnginePlan&)>& memory_of);

}  // namespace zero::detail
