// Checks from plans alone that they cannot race: every pair of conflicting accesses is ordered by
// streams and by the waits of instructions, every compute step finds its own unit in the slot that
// it reads, and no unit is reduced before its last backward use.
#pragma once

#include <string>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

// Returns the first fault found when the plans run one after another, or "" if there is none.
std::string find_plan_fault(const PlanInputs& inputs, const std::vector<const StepPlan*>& sequence);

// Checks the sequences that an engine can walk, including those from the halves if its order was
// learned; throws std::logic_error with the fault.
void check_plans(const PlanInputs& inputs, const StepPlans& plans,
                 const HalfPlans* halves = nullptr);

}  // namespace zero::detail
