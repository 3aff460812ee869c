#include "zero/engine_plan.h"

#include <algorithm>

#include "zero/plan_checker.h"

namespace zero::detail {

namespace {

bool shards_optimizer(const EnginePlan& plan) {
  return plan.layout.ranks == 1 || plan.placement.optimizer == Rest::shard;
}

// A placement over one rank has nothing to place; what remains is when gradients are added up.
StatePolicy make_state_policy(const EnginePlan& plan, const Precision& precision, int rank) {
  const bool collective = plan.layout.ranks > 1;
  const bool accumulates = plan.batch.accumulation > 1;
  const bool adds_shards = accumulates && plan.sync_each;
  const bool adds_wholes = accumulates && !plan.sync_each;
  const bool shards_at_rest = plan.placement.gradient == Rest::shard && (collective || adds_shards);
  StatePolicy policy;
  policy.rank = rank;
  policy.precision = precision;
  policy.parameters_sharded = collective && plan.placement.parameter == Rest::shard;
  policy.optimizer_sharded = shards_optimizer(plan);
  if (precision.accumulation != precision.compute) {
    // Backward cannot write the dtype of sums: its gradients pass through slots.
    const bool whole = adds_wholes || !policy.optimizer_sharded;
    policy.accumulator = whole ? Accumulator::whole : Accumulator::shard;
    policy.accumulate_locally = adds_wholes;
  } else {
    policy.gradients_whole = !shards_at_rest || adds_wholes;
    const bool shard = !policy.gradients_whole || adds_shards;
    policy.accumulator = shard ? Accumulator::shard : Accumulator::none;
  }
  policy.optimizer_states = plan.updates.state_names();
  policy.group_of_param = plan.updates.group_of_param();
  for (const UpdateGroup& group : plan.updates.groups())
    policy.states_of_group.push_back(group.states);
  if (plan.updates.needs_tensor_norms())
    policy.norm_words =
        2 * ModelState::words_per_norm * static_cast<std::int64_t>(policy.group_of_param.size());
  policy.matrix_staging = plan.matrices.staging(rank);
  return policy;
}

PlanInputs make_plan_inputs(const EnginePlan& plan, const Model& model,
                            const ZeroOptions& options) {
  constexpr int two_in_turn = 2, one_each = 0;
  const StatePolicy& policy = plan.policy;
  PlanInputs inputs;
  inputs.model = &model;
  inputs.layout = &plan.layout;
  inputs.gather_parameters = policy.parameters_sharded;
  inputs.reshard_after_forward = plan.placement.reshard_after_forward;
  inputs.gather_after_update =
      plan.layout.ranks > 1 && policy.optimizer_sharded && !policy.parameters_sharded;
  inputs.tensor_norms = policy.norm_words > 0;
  inputs.accumulate_locally = policy.accumulate_locally;
  inputs.max_reuse_distance = options.max_reuse_distance;
  inputs.chunks = make_chunks(plan.layout, policy);
  const bool in_turn = policy.parameters_sharded && plan.placement.reshard_after_forward;
  inputs.parameter_slots =
      assign_slots(plan.layout, {in_turn ? two_in_turn : one_each, false,
                                 options.prefetch_bucket_size, options.max_live_parameters});
  inputs.gradient_slots = assign_slots(
      plan.layout,
      {policy.gradients_whole ? one_each : two_in_turn, true, std::nullopt, std::nullopt});
  return inputs;
}

bool synchronizes_each(const Placement& placement, GradientSync sync) {
  return sync == GradientSync::automatic ? placement.sync_each : sync == GradientSync::each;
}

}  // namespace

EnginePlan::EnginePlan(const Model& model, const Config& config, int rank, int ranks)
    : batch(resolve_batch(config.batch, ranks)),
      placement(placement_for(config.zero_optimization, config.zero_core)),
      sync_each(synchronizes_each(placement, config.zero_core.gradient_sync)),
      layout(make_layout(model, ranks, config.zero_optimization)),
      updates(model, config),
      matrices(model, layout, updates, ranks > 1 && shards_optimizer(*this)),
      policy(make_state_policy(*this, precision_for(config, ranks), rank)) {
  if (ranks > 1)
    policy.reduce_piece = piece_elements(config.zero_optimization.reduce_bucket_size, ranks);
  inputs = make_plan_inputs(*this, model, config.zero_optimization);
  steps = make_step_plans(inputs, sync_each);
  check_plans(inputs, steps);
}

std::int64_t piece_elements(std::int64_t bucket, int ranks) {
  return std::max(alignment_elements, bucket / ranks / alignment_elements * alignment_elements);
}

}  // namespace zero::detail
