// The memory that an engine would need, for a plan that exists already: plan_memory() of
// zero/zero.h makes the plan too.
#pragma once

#include "zero/plan/engine_plan.h"
#include "zero/report.h"

namespace zero::detail {

// Needs neither ranks nor a device. The plan must have been made from this config.
MemoryPlan memory_of(const EnginePlan& plan, const Config& config);

}  // namespace zero::detail
