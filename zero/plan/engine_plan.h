// Everything that follows from model, config and ranks before any memory is taken: placement,
// layout, slots, step plans and the bytes of each category. The same on a machine that could not
// run it.
#pragma once

#include "zero/plan/matrix_plan.h"
#include "zero/plan/placement.h"
#include "zero/plan/step_plan.h"
#include "zero/plan/update_groups.h"
#include "zero/state/state.h"

namespace zero::detail {

struct EnginePlan {
  EnginePlan(const Model& model, const Config& config, int rank, int ranks, bool on_gpu = false);
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
