// Checks the contents of memory that a walk of plans gives: every compute step reads a slot that
// contains the step's unit, and no unit is reduced before its last backward use. The order of
// conflicting accesses needs no check at run time, because waits are derived from the accesses;
// tests prove it (tests/support/plan_proof.h).
#pragma once

#include <string>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

// Returns the first fault found when the plans run in sequence, or "" if there is none.
std::string find_plan_fault(const PlanInputs& inputs, const std::vector<const StepPlan*>& sequence);

// Checks the sequences that an engine can walk, including those from the halves if the order was
// learned; throws std::logic_error with the fault.
void check_plans(const PlanInputs& inputs, const StepPlans& plans,
                 const HalfPlans* halves = nullptr);

}  // namespace zero::detail
