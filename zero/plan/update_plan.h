// The plan of the optimizer step: ranks agree, then every chunk is updated, in forward order; or,
// where updates are delayed, what the last step's have left aside is published.
#pragma once

#include "zero/plan/step_plan.h"

namespace zero::detail {

StepPlan make_update_plan(const PlanInputs& inputs);
// Between steps: does now what a delayed update has left.
StepPlan make_drain_plan(const PlanInputs& inputs);

}  // namespace zero::detail
