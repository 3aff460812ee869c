#include "zero/plan/plan_emitter.h"

namespace zero::detail {

void PlanEmitter::emit(Op op, int target, const std::vector<EventId>& waits,
                       std::vector<EventId> signals) {
  Instruction instruction{op, target, {}, std::move(signals)};
  for (const EventId& event : waits) {
    const auto found = signalled_.find(event);
    instruction.waits.push_back({event, found == signalled_.end() ? 0 : found->second});
  }
  for (const EventId& event : instruction.signals) ++signalled_[event];
  plan_.instructions.push_back(std::move(instruction));
}

}  // namespace zero::detail
