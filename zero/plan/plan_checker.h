// Proves from plans alone that they cannot race: every pair of conflicting accesses is ordered by
// streams and by what instructions wait for, every compute step finds its own unit in the slot that
// it reads, and no unit is reduced before its last backward use.
#pragma once

#include <string>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

// The first fault found when the plans run one after another, or "" when there is none.
std::string find_plan_fault(const PlanInputs& inputs, const std::vector<const StepPlan*>& sequence);

// Checks the sequences that an engine can walk, also from the halves where its order was learned;
// throws std::logic_error with the fault.
void check_plans(const PlanInputs& inputs, const StepPlans& plans,
                 const HalfPlans* halves = nullptr);

}  // namespace zero::detail
