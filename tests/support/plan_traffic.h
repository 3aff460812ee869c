// Counts the elements that a plan gathers, from shards and from second copies, and reduces,
// including padding.
#pragma once

#include <cstdint>

#include "zero/plan/step_plan.h"

namespace plan_traffic {

struct Traffic {
  std::int64_t gathered = 0, regathered = 0, reduced = 0;
};

inline Traffic of(const zero::detail::StepPlan& plan, const zero::detail::Layout& layout) {
  using zero::detail::Op;
  Traffic traffic;
  for (const zero::detail::Instruction& instruction : plan.instructions) {
    if (target_of(instruction.op) != zero::detail::Target::flat_unit) continue;
    const zero::detail::FlatUnit& flat = layout.flat_unit(instruction.target);
    if (instruction.op == Op::reduce) traffic.reduced += flat.trainable_elements();
    if (instruction.op == Op::gather) traffic.gathered += flat.elements();
    if (instruction.op == Op::regather) traffic.regathered += flat.elements();
  }
  return traffic;
}

}  // namespace plan_traffic
