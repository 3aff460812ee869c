// Plans of a micro step and of an evaluation pass: gathers ahead of the scopes that need them,
// reductions behind the last scope that adds to a gradient.
#pragma once

#include <cstdint>
#include <optional>

#include "zero/plan/step_plan.h"

namespace zero::detail {

enum class MicroPosition : std::uint8_t { first, middle, last, only };

// `reduction`: what becomes of the gradients. States are read ahead in the last one.
StepPlan make_micro_plan(const PlanInputs& inputs, MicroPosition position,
                         std::optional<Op> reduction);
StepPlan make_evaluation_plan(const PlanInputs& inputs, bool first);

}  // namespace zero::detail
