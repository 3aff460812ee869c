// What the optimizer launches: for each chunk its elements by update rule, with the ranges that
// belong to one group or one tensor. A pure function of the plan and of the state's layout, made
// once, in host memory.
#pragma once

#include <vector>

#include "optim/device_kernels.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/state_store.h"

namespace zero::detail {

// Elements whose groups have one rule: what one launch updates.
struct UpdatePart {
  optim::RuleKind rule{};
  int group = 0;  // one of them; all have the same states
  Range range;
  int first_range = 0;  // in UpdateParts::ranges
  int range_count = 0;
};

struct UpdateParts {
  UpdateParts(const EnginePlan& plan, const ModelState& state);

  std::vector<std::vector<UpdatePart>> of_chunk;
  // Of all parts, one after another; each counts from the first element of its part.
  std::vector<optim::GroupRange> ranges;
};

}  // namespace zero::detail
