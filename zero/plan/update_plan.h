// The plan of the optimizer step: ranks agree, then every chunk is updated, in forward order.
#pragma once

#include "zero/plan/step_plan.h"

namespace zero::detail {

StepPlan make_update_plan(const PlanInputs& inputs);

}  // namespace zero::detail
