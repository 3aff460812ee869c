// A plan that grows by instructions, whose order among streams follows from what they read and
// write. Used by those that make plans.
#pragma once

#include <string>
#include <utility>

#include "zero/plan/step_plan.h"

namespace zero::detail {

class PlanEmitter {
 public:
  // The inputs outlive it.
  PlanEmitter(const PlanInputs& inputs, std::string name) : inputs_(inputs) {
    plan_.name = std::move(name);
  }
  void emit(Op op, int target);
  StepPlan take();

 private:
  const PlanInputs& inputs_;
  StepPlan plan_;
};

// Sets Instruction::after from the accesses.
void derive_order(StepPlan& plan);

}  // namespace zero::detail
