// What each instruction of a plan reads and writes. All order among streams is derived from it.
#pragma once

#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

std::vector<ResourceAccess> accesses_of(const PlanInputs& inputs, Op op, int target);
const char* name_of(Resource resource);

}  // namespace zero::detail
