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

// Whether the chunk's gradient is read from the file.
inline bool recalls(const PlanInputs& inputs, const Chunk& chunk) {
  return inputs.offload.gradients && chunk.state_in_file;
}

}  // namespace zero::detail
