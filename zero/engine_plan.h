// Everything that follows from model, config and ranks before any memory is taken: placement,
// layout, slots, step plans and the bytes of each category. The same on a machine that could not
// run it.
#pragma once

#include "zero/matrix_plan.h"
#include "zero/placement.h"
#include "zero/state.h"
#include "zero/step_plan.h"
#include "zero/update_groups.h"

namespace zero::detail {

struct EnginePlan {
  EnginePlan(const Model& model, const Config& config, int rank, int ranks);
  EnginePlan(const EnginePlan&) = delete;  // inputs points into it
  EnginePlan& operator=(const EnginePlan&) = delete;

  Batch batch;
  Placement placement;
  bool sync_each = false;  // gradients are synchronized in each micro step, not only in the last
  Layout layout;
  UpdateGroups updates;
  MatrixPlan matrices;
  StatePolicy policy;
  PlanInputs inputs;
  StepPlans steps;
};

// Elements per rank of one collective, so that it moves at most `bucket` elements in all.
std::int64_t piece_elements(std::int64_t bucket, int ranks);

}  // namespace zero::detail
