// Everything that follows from model, config and ranks before any memory is taken: strategy,
// layout, slots, step plans and the size of each array. A machine that could not run the model can
// make it too.
#pragma once

#include "zero/plan/matrix_plan.h"
#include "zero/plan/placement.h"
#include "zero/plan/route.h"
#include "zero/plan/state_policy.h"
#include "zero/plan/step_plan.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

// This rank in its model-parallel group, over which parameters may be split.
struct ModelParallel {
  int rank = 0, size = 1;
};

// The rank that a plan is for.
struct PlanRank {
  int rank = 0, ranks = 1;
  bool on_gpu = false;
  bool strict = false;  // see zero/strict.h
  ModelParallel model_parallel = {};
  int node_ranks = 0;  // neighbours on each node; 0: all ranks are on one, -1: nodes are not alike

  int neighbours() const { return node_ranks != 0 ? node_ranks : ranks; }
};

struct EnginePlan {
  EnginePlan(const Model& model, const Config& config, const PlanRank& on);
  EnginePlan(const EnginePlan&) = delete;  // inputs points into it
  EnginePlan& operator=(const EnginePlan&) = delete;

  // The first pass has shown the forward order, after its forward scopes: all plans are made anew.
  // Returns what is left of the step's first micro step, which may be the `last` as well.
  StepPlan learn_order(std::vector<int> order, bool last);
  // Later passes have another order: all plans are made anew, between micro steps.
  void change_order(std::vector<int> order);

  bool strict;
  Batch batch;
  RankGrid asked;                  // by the config
  Strategy configured, placement;  // they differ only in strict mode
  // As asked for, but groups of one rank divide nothing: what is sharded then is sharded over all.
  RankGrid grid;
  bool accumulates;  // a step may have several micro steps
  // Of sums over all ranks; none where they are those of a node.
  comm::ReduceGroups reduce_groups;
  WireFormats wire;
  int inner_group;    // inner_group_of()
  GradientSync sync;  // never automatic
  // Each micro step reduces gradients, if only inside groups, not the last alone.
  bool sync_each() const { return sync != GradientSync::last; }
  Layout layout;
  UpdateGroups updates;
  MatrixPlan matrices;
  StatePolicy policy;
  PlanInputs inputs;
  // The slots that have memory of their own: those of `inputs`, or in strict mode one for each flat
  // unit, which is used by the same rules.
  SlotAssignment parameter_memory, gradient_memory;
  StepPlans steps;
  Routes routes{*this, layout};
};

}  // namespace zero::detail
