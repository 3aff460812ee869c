// Everything derived from model, config and ranks before any memory is taken: strategy, layout,
// slots, step plans and the size of each array. A machine that could not run the model can make a
// plan too.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "zero/plan/array_table.h"
#include "zero/plan/kept_buffers.h"
#include "zero/plan/matrix_plan.h"
#include "zero/plan/placement.h"
#include "zero/plan/route.h"
#include "zero/plan/state_policy.h"
#include "zero/plan/step_plan.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

// The place on an axis of the grid, and its neighbors in the ring of the axis.
struct AxisPlace {
  int rank = 0, ranks = 1;

  int before() const { return (rank + ranks - 1) % ranks; }
  int after() const { return (rank + 1) % ranks; }
};

// The rank of a plan, among the data ranks.
struct PlanRank {
  int rank = 0, ranks = 1;
  bool on_gpu = false;
  bool strict = false;    // see zero/runtime/strict_mode.h
  AxisPlace tensor = {};  // parameters may be split over this axis
  int node_ranks = 0;     // consecutive ranks per node; 0: all ranks on one node, -1: nodes differ
  AxisPlace pipe = {};    // the model of the plan is that of this stage

  int neighbors() const { return node_ranks != 0 ? node_ranks : ranks; }
};

struct EnginePlan {
  EnginePlan(const Model& model, const Config& config, const PlanRank& rank);
  EnginePlan(const EnginePlan&) = delete;  // inputs points into the plan
  EnginePlan& operator=(const EnginePlan&) = delete;

  // Remakes all plans for the forward order that the first pass has shown, after its forward
  // scopes. `used`: those scopes, in order; `order` has all units. Returns the remaining plan of
  // the step's first micro step; that step may also be the `last`.
  StepPlan learn_order(std::vector<int> order, const std::vector<int>& used, bool last);
  // Returns a plan that reduces the gradients of these flat units alone.
  StepPlan reduction_of(const std::vector<int>& flat_units) const {
    return make_reduction_plan(inputs, sync_each(), flat_units);
  }
  // Remakes all plans for another order of later passes, between micro steps.
  void change_order(std::vector<int> order);

  PlanRank on;
  bool strict;
  Batch batch;
  Strategy configured, placement;  // different only in strict mode
  ProcessGrid grid;                // as ProcessGrid::with_shards()
  bool accumulates;                // a step may have several micro steps
  // Groups of sums over all ranks; none if equal to the node's.
  comm::ReduceGroups reduce_groups;
  WireFormats wire;
  int inner_group;    // see inner_group_of()
  GradientSync sync;  // never automatic
  // Whether each micro step, not only the last, reduces gradients, possibly only inside groups.
  bool sync_each() const { return sync != GradientSync::last; }
  // Whether the sum over all ranks is complete after every micro step, so that any may be the last.
  bool completes_each() const { return sync == GradientSync::each; }
  // Whether every micro step ends with gradients reduced, or added to a whole sum. Otherwise
  // backward adds up in the gradient buffer until the last micro step.
  bool empties_gradients() const { return sync_each() || policy.accumulates_locally(); }
  // Whether a tensor's update is divided over ranks.
  bool splits_updates() const { return on.ranks > 1 && policy.optimizer_sharded(); }
  bool rank_independent() const { return policy.rank_independent(); }
  // Returns the layout of another model on this grid, with this plan's settings.
  Layout layout_of(const Model& other) const;
  // The settings that decide which gradients are summed in which order, by name.
  std::map<std::string, std::string> summation_terms() const;
  // Number of ranks, from the first on, with a micro batch in a micro step. Less than all ranks
  // only with rank_independent(), in the last micro step.
  int batches_in(std::int64_t micro_step) const {
    return static_cast<int>(std::min<std::int64_t>(
        grid.data_ranks(), batch.micro_batches - micro_step * grid.data_ranks()));
  }
  // Number of losses that each rank lists before a step: one per micro step, or none.
  std::int64_t losses_per_rank() const { return rank_independent() ? batch.accumulation : 0; }
  // Number of a rank's micro batches in a step.
  int micro_steps_of(int rank) const {
    const bool in_last = rank < batches_in(batch.accumulation - 1);
    return static_cast<int>(batch.accumulation) - (in_last ? 0 : 1);
  }
  int own_micro_steps() const { return micro_steps_of(policy.rank); }
  ZeroOptions layout_options;
  Layout layout;
  UpdateGroups updates;
  KeptBuffers buffers;
  MatrixPlan matrices;
  StatePolicy policy;
  PlanInputs inputs;
  // The slots with separate memory: those of `inputs`, or in strict mode a slot for each flat unit,
  // used by the same rules.
  SlotAssignment parameter_memory, gradient_memory;
  StepPlans steps;
  Routes routes{*this, layout};
  ArrayTable arrays;

 private:
  // `asked`: the grid that the config requests.
  EnginePlan(const Model& model, const Config& config, const PlanRank& rank,
             const ProcessGrid& asked);
};

}  // namespace zero::detail
