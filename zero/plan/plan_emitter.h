// A plan that grows by instructions, counting the signals of each event. Used by those that make
// plans.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

class PlanEmitter {
 public:
  explicit PlanEmitter(std::string name) { plan_.name = std::move(name); }
  void emit(Op op, int target, const std::vector<EventId>& waits, std::vector<EventId> signals);
  StepPlan take() { return std::move(plan_); }

 private:
  std::map<EventId, int> signalled_;
  StepPlan plan_;
};

}  // namespace zero::detail
