#include "zero/plan/plan_emitter.h"

#include <algorithm>

#include "zero/plan/access_history.h"

namespace zero::detail {

void PlanEmitter::emit(Op op, int target) {
  plan_.instructions.push_back({op, target, accesses_of(inputs_, op, target), {}});
}

StepPlan PlanEmitter::take() {
  derive_order(plan_);
  return std::move(plan_);
}

void derive_order(StepPlan& plan) {
  AccessHistory<std::size_t> history;
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    Instruction& instruction = plan.instructions[i];
    const PlanStream stream = stream_of(instruction.op);
    std::vector<std::size_t>& after = instruction.after;
    after.clear();
    for (const ResourceAccess& access : instruction.accesses)
      history.for_earlier(access, [&](std::size_t earlier) {
        if (stream_of(plan.instructions[earlier].op) != stream) after.push_back(earlier);
      });
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    for (const ResourceAccess& access : instruction.accesses) history.add(access, stream, i);
  }
}

}  // namespace zero::detail
