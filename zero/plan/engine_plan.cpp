#include "zero/plan/engine_plan.h"

#include <algorithm>
#include <tuple>

#include "zero/base/error.h"
#include "zero/plan/config_fields.h"
#include "zero/plan/pipeline.h"
#include "zero/plan/pipeline_schedule.h"
#include "zero/plan/plan_checker.h"
#include "zero/plan/rank_independence.h"

namespace zero::detail {

namespace {

constexpr int two_in_turn = 2, one_each = 0;  // slots per class

Holding updated_holding(const EnginePlan& plan) {
  if (plan.placement.optimizer_across == Placement::shard) return Holding::slice;
  const bool sharded = plan.grid.data_ranks() == 1 || plan.placement.optimizer == Placement::shard;
  return sharded ? Holding::shard : Holding::whole;
}

// The dtype of a reduction's result. A single rank keeps backward's output.
DType wire_of(const Precision& precision, const Layout& layout) {
  return layout.grid.data_ranks() > 1 ? precision.wire : precision.compute;
}

// With one rank nothing is sharded, except in strict mode; the remaining choice is when gradients
// are summed.
void place_gradients(const EnginePlan& plan, StatePolicy& policy) {
  const bool accumulates = plan.accumulates;
  const bool adds_shards = accumulates && plan.sync_each();
  const bool adds_wholes = accumulates && !plan.sync_each();
  const bool gradient_sharded = plan.placement.gradient == Placement::shard &&
                                (plan.grid.data_ranks() > 1 || plan.strict || adds_shards ||
                                 policy.homes.optimizer != Tier::memory);
  if (policy.precision.accumulation != policy.precision.compute || policy.rank_independent()) {
    // The sum is another array than backward's output, so gradients pass through slots.
    const bool whole = !policy.optimizer_sharded();
    policy.accumulator = adds_wholes ? Accumulator::local
                         : whole     ? Accumulator::whole
                                     : Accumulator::shard;
  } else {
    policy.gradients_whole = !gradient_sharded || adds_wholes;
    const bool shard = !policy.gradients_whole || adds_shards;
    policy.accumulator = shard ? Accumulator::shard : Accumulator::none;
  }
  const bool reduced_to_shard = !policy.gradients_whole && policy.accumulator == Accumulator::shard;
  // Gradients stay on the device if a GPU has to sum, cast or step with them, and on any device if
  // the groups sum or divide at the end, or summands are added one by one.
  const bool groups_need = plan.placement.optimizer_across == Placement::shard ||
                           policy.group_sums.last || policy.group_sums.inner_ranks > 0;
  const bool leaves =
      reduced_to_shard && !groups_need && !policy.homes.steps_on_device &&
      !policy.rank_independent() &&
      (!policy.on_gpu ||
       (!accumulates && policy.precision.accumulation == wire_of(policy.precision, plan.layout)));
  if (leaves) policy.homes.gradient = policy.homes.optimizer;
}

// A micro step begins with a multiple of the number of ranks. On a single node a sum of a group
// saves no traffic, and one exchange is faster than two.
Fold make_fold(std::int64_t group, const EnginePlan& plan) {
  Fold fold{group};
  if (group == 1) return fold;
  const int ranks = plan.grid.data_ranks(), neighbors = plan.on.neighbors();
  fold.stays_open = ranks % group != 0 && plan.batch.accumulation > 1;
  const bool on_nodes = neighbors > 0 && neighbors < ranks;
  if (on_nodes && neighbors % group == 0) fold.ranks = static_cast<int>(group);
  return fold;
}

Tier home_of(OffloadDevice device, bool on_gpu) {
  if (device == OffloadDevice::nvme) return Tier::file;
  return device == OffloadDevice::cpu && on_gpu ? Tier::host : Tier::memory;
}

StatePolicy make_state_policy(const EnginePlan& plan, const Config& config,
                              const ProcessGrid& asked) {
  const PlanRank& on = plan.on;
  const ZeroOptions& options = config.zero_optimization;
  StatePolicy policy;
  policy.rank = on.rank;
  policy.grid = plan.grid;
  policy.on_gpu = on.on_gpu;
  policy.counts_replicas = on.tensor.rank == 0;
  policy.precision = precision_for(config, on.ranks);
  const std::int64_t fold_group = fold_group_of(config.zero_core);
  if (config.zero_core.rank_independent) policy.fold = make_fold(fold_group, plan);
  policy.homes.optimizer = home_of(options.offload_optimizer.device, on.on_gpu);
  if (policy.homes.optimizer == Tier::host) policy.homes.step_by(config.zero_core.offload_step);
  if (plan.configured.parameter == Placement::shard)
    policy.homes.parameter = home_of(options.offload_param.device, on.on_gpu);
  policy.parameters_sharded =
      plan.placement.parameter == Placement::shard &&
      (on.ranks > 1 || plan.strict || policy.homes.parameter != Tier::memory);
  policy.second_copy_ranks = second_copy_ranks(options, asked);
  policy.updates = updated_holding(plan);
  if (on.ranks > 1 || policy.rank_independent()) policy.buckets.reduce = options.reduce_bucket_size;
  policy.buckets.gather = options.allgather_bucket_size;
  policy.wire = plan.wire;
  const bool groups = plan.grid.replicas() > 1;
  const bool accumulates = plan.accumulates;
  policy.group_sums.last = groups && accumulates && plan.sync == GradientSync::inner;
  policy.group_sums.adds = groups && accumulates && plan.sync == GradientSync::each;
  if (!groups && accumulates && plan.sync == GradientSync::inner)
    policy.group_sums.inner_ranks = plan.inner_group;
  place_gradients(plan, policy);
  return policy;
}

PlanInputs make_plan_inputs(const EnginePlan& plan, const Model& model, const Config& config) {
  const ZeroOptions& options = config.zero_optimization;
  const StatePolicy& policy = plan.policy;
  PlanInputs inputs;
  inputs.model = &model;
  inputs.layout = &plan.layout;
  inputs.order = model.order;
  inputs.policy = &policy;
  inputs.reshard_after_forward = plan.placement.reshard_after_forward;
  const bool on_many = plan.grid.data_ranks() > 1;
  inputs.gather_after_update = on_many && policy.optimizer_sharded() && !policy.parameters_sharded;
  inputs.spread_after_update = plan.grid.replicas() > 1 && policy.updates == Holding::slice;
  inputs.max_reuse_distance = options.max_reuse_distance;
  inputs.repeats_batches = config.zero_core.recompute_every > 0;
  inputs.measures_tensors = plan.updates.needs_tensor_norms();
  const std::vector<int> needed_first =
      model.order.empty() ? std::vector<int>() : plan.layout.needs_of_unit[model.order.front()];
  std::tie(inputs.chunks, inputs.offload) =
      make_chunking(plan.layout, policy, plan.updates, config, needed_first);
  const bool in_turn = policy.parameters_sharded && plan.placement.reshard_after_forward;
  inputs.parameter_slots =
      assign_slots(plan.layout, {in_turn ? two_in_turn : one_each, false,
                                 options.prefetch_bucket_size, options.max_live_parameters});
  inputs.gradient_slots =
      assign_slots(plan.layout, {policy.gradients_whole ? one_each : two_in_turn, true});
  return inputs;
}

// Rules that see whole tensors need all the state of a segment in memory at once. A state that only
// some parameter groups have leaves gaps, and a file does not store gaps.
void check_chunks(const EnginePlan& plan, const std::string& optimizer) {
  for (const Chunk& chunk : plan.inputs.chunks) {
    const Segment& segment = plan.layout.segment(chunk);
    const bool whole = chunk.count == plan.policy.updated(segment).count();
    for (const ParamPlace& place : segment.params) {
      const UpdateGroup& group = plan.updates.group(plan.updates.group_of_param()[place.param]);
      const bool gaps = group.states.size() != plan.updates.state_names().size();
      const bool by_elements = group.rule->scope == optim::UpdateScope::elements;
      if ((chunk.on_host || chunk.streamed) && (!by_elements || gaps))
        throw ConfigError("optimizer " + optimizer +
                          " cannot have its state in the host memory of a GPU rank: set "
                          "zero_optimization.offload_optimizer.device to \"none\", or choose "
                          "Adam, AdamW, Lion, Adagrad or SGD, alone");
      if ((!by_elements && (!whole || chunk.slot >= 0)) || (gaps && chunk.state_in_file))
        throw ConfigError("optimizer " + optimizer +
                          " cannot have its state or its parameters in a file: set "
                          "zero_optimization.offload_optimizer.device and offload_param.device to "
                          "\"none\" or \"cpu\", or choose Adam, AdamW, Lion, Adagrad or SGD");
    }
  }
}

void check_offload(const Config& config, const EnginePlan& plan) {
  const ZeroOptions& options = config.zero_optimization;
  if (options.offload_optimizer.device == OffloadDevice::nvme &&
      plan.configured.optimizer == Placement::replicate)
    throw ConfigError(
        "zero_optimization.offload_optimizer.device nvme needs stage 1, 2 or 3: at stage 0 every "
        "rank would write the whole optimizer state to its file");
  std::string missing;
  const auto require_path = [&](OffloadDevice device, const std::string& path,
                                const std::string& section) {
    if (device == OffloadDevice::nvme && path.empty())
      missing += (missing.empty() ? "zero_optimization." : " and zero_optimization.") + section +
                 ".nvme_path";
  };
  require_path(options.offload_optimizer.device, options.offload_optimizer.nvme_path,
               "offload_optimizer");
  if (plan.policy.homes.parameter == Tier::file)
    require_path(options.offload_param.device, options.offload_param.nvme_path, "offload_param");
  if (!missing.empty())
    throw ConfigError(missing + " must be given with device nvme: a directory on a local disk");
  if (plan.policy.homes.parameter != Tier::memory &&
      plan.placement.optimizer_across == Placement::shard)
    throw ConfigError(
        "zero_optimization.offload_param with zero_core.optimizer_over_all_ranks: new parameters "
        "travel between groups, which needs them in memory; set one of the two to its default");
}

// Throws if this version cannot offload a setting from a GPU.
void check_offload_of_gpu(const Config& config, const EnginePlan& plan) {
  const ZeroOptions& options = config.zero_optimization;
  const bool updates_on_gpu = plan.policy.homes.optimizer == Tier::memory;
  if (const std::string& step = config.zero_core.offload_step;
      step != "host" && plan.policy.homes.any_file())
    throw ConfigError(
        "zero_core.offload_step \"" + step +
        "\" on GPU ranks does not go with offload_optimizer.device "
        "or offload_param.device nvme: state in a file is updated in host memory; choose cpu, or "
        "leave offload_step out");
  if (plan.policy.homes.parameter != Tier::memory &&
      (updates_on_gpu || options.offload_optimizer.ratio < 1))
    throw ConfigError(
        "zero_optimization.offload_param.device cpu and nvme need offload_optimizer.device cpu or "
        "nvme with ratio 1 on GPU ranks: parameters are updated with the states of their chunk");
  if (!updates_on_gpu && plan.configured.optimizer == Placement::replicate)
    throw ConfigError(
        "zero_optimization.offload_optimizer.device cpu and nvme need stage 1, 2 or 3 on GPU "
        "ranks: at stage 0 every rank would keep and update the state of the whole model there");
}

bool needs_matrices(optim::UpdateScope scope) {
  return scope == optim::UpdateScope::whole_matrices || scope == optim::UpdateScope::tensor_factors;
}

void check_split_matrices(const Model& model, const UpdateGroups& updates) {
  for (int p = 0; p < std::ssize(model.params); ++p) {
    const int group = updates.group_of_param()[p];
    if (group >= 0 && model.params[p].options.split &&
        needs_matrices(updates.group(group).rule->scope))
      throw ConfigError("parameter " + model.params[p].name +
                        " is split over the tensor group, and the optimizer's rule for it "
                        "needs the whole matrix: declare it with .whole = false, or choose "
                        "another optimizer");
  }
}

// The memory is taken at start, before the number of uses is known; messages are in host memory.
void check_kept(const Model& model, bool on_gpu) {
  for (const UnitDeclaration& unit : model.units)
    if (on_gpu && std::ranges::any_of(unit.kept, &KeptDeclaration::sized_by_program))
      throw UsageError("unit " + unit.name +
                       " declares output() without a shape, which GPU ranks need: declare it");
  const auto keeps = std::ranges::find_if(
      model.units, [](const UnitDeclaration& unit) { return !unit.kept.empty(); });
  if (model.learns_order && keeps != model.units.end())
    throw UsageError("unit " + keeps->name + " keeps \"" + keeps->kept.front().name +
                     "\" from forward to backward, which a model that learns its order cannot: "
                     "declare units in forward order, and repeated ones by ModelSpec::again()");
}

// Sums are formed inside shard groups first, at each stage that must be bitwise identical to a run
// with shard groups.
comm::ReduceGroups reduce_groups_of(const ProcessGrid& grid, const CoreOptions& options) {
  const std::string key = "zero_core.reduce_group_size";
  comm::ReduceGroups groups = options.reduce_group_size;
  const std::vector<int>& wider = options.wider_reduce_groups;
  if (std::ssize(wider) >= comm::ReduceGroups::most_levels)
    throw ConfigError(key + " has " + std::to_string(wider.size() + 1) +
                      " groups; expected up to " + std::to_string(comm::ReduceGroups::most_levels));
  std::ranges::copy(wider, groups.sizes + 1);
  if (!groups.nested())
    throw ConfigError(key + " is [" + comm::text_of(groups) +
                      "]: each number has to be a multiple of the one before");
  if (grid.replicas() == 1) return groups;
  if (options.reduce_group_size == 0) return grid.shard_ranks();
  if (!groups.has(grid.shard_ranks()))
    throw ConfigError(key + " is " + comm::text_of(groups) + ", and zero_core.shard_group_size " +
                      std::to_string(grid.shard_ranks()) +
                      ": gradients are summed inside shard groups first; give both the same value, "
                      "a list with this value in it, or leave reduce_group_size out");
  return groups;
}

// The default if the number of micro steps varies and is mostly one: a sum of shards is the
// smallest, but on one rank backward adds directly into the gradient.
GradientSync sync_of_one(const EnginePlan& plan, const Config& config, const PlanRank& on) {
  const bool stays = config.zero_optimization.offload_optimizer.device == OffloadDevice::none;
  return on.ranks == 1 && stays && !plan.strict ? GradientSync::last : GradientSync::each;
}

GradientSync sync_of(const EnginePlan& plan, const Config& config, const ProcessGrid& asked) {
  const PlanRank& on = plan.on;
  const CoreOptions& options = config.zero_core;
  if (options.rank_independent) return GradientSync::each;
  if (options.gradient_sync == GradientSync::automatic)
    return plan.accumulates && plan.batch.accumulation == 1 ? sync_of_one(plan, config, on)
                                                            : plan.placement.sync;
  if (options.gradient_sync != GradientSync::inner || plan.grid.replicas() > 1)
    return options.gradient_sync;
  const int group = options.shard_group_size ? asked.shard_ranks() : plan.inner_group;
  // A single group spans all ranks; groups of one rank have nothing to sum inside. With one micro
  // step there is nothing to accumulate, for any groups.
  if (group >= on.ranks) return GradientSync::each;
  if (group == 1 || !plan.accumulates) return GradientSync::last;
  if (group < 1 || on.ranks % group != 0)
    throw ConfigError(
        "zero_core.gradient_sync inner sums in groups of zero_core.reduce_group_size "
        "ranks, and " +
        std::to_string(on.ranks) +
        " ranks cannot be cut into equal ones: set it to a divisor, or choose "
        "\"each\" or \"last\"");
  return GradientSync::inner;
}

// If parameters are kept whole, all of them stay gathered anyway.
ZeroOptions options_of_layout(const ZeroOptions& given, const Strategy& configured) {
  ZeroOptions options = given;
  if (configured.parameter != Placement::shard) options.param_persistence_threshold.reset();
  return options;
}

void check_inner_group(const Config& config, const EnginePlan& plan) {
  if (config.zero_core.inner_group_size && plan.grid.replicas() == 1 &&
      config.zero_core.gradient_sync != GradientSync::inner &&
      !config.zero_optimization.quantized_gradients)
    throw ConfigError(
        "zero_core.inner_group_size has no effect without zero_core.gradient_sync \"inner\" or "
        "zero_optimization.zero_quantized_gradients: set one of these, or leave the key out");
}

}  // namespace

EnginePlan::EnginePlan(const Model& model, const Config& config, const PlanRank& rank)
    : EnginePlan(model, config, rank,
                 grid_for(config.zero_core, rank.ranks, rank.neighbors(), rank.tensor.ranks,
                          rank.pipe.ranks)) {}

EnginePlan::EnginePlan(const Model& model, const Config& config, const PlanRank& rank,
                       const ProcessGrid& asked)
    : on(rank),
      strict(on.strict),
      batch(resolve_batch(config.batch, on.ranks, config.zero_core.rank_independent)),
      configured(strategy_for(config.zero_optimization, config.zero_core, asked)),
      placement(strict ? strict_strategy(configured) : configured),
      grid(asked.with_shards()),
      accumulates(batch.accumulation > 1 || model.any_micro_steps),
      reduce_groups(reduce_groups_of(grid, config.zero_core)),
      wire(wire_formats_for(config, configured, grid, on.neighbors())),
      inner_group(
          inner_group_of(config.zero_core, grid, on.neighbors(), wire.reduces_otherwise_inside())),
      sync(sync_of(*this, config, asked)),
      layout_options(options_of_layout(config.zero_optimization, configured)),
      layout(layout_of(model)),
      updates(model, config),
      buffers(model, updates),
      matrices(model, layout, updates, on.ranks > 1 ? updated_holding(*this) : Holding::whole),
      policy(make_state_policy(*this, config, asked)) {
  check_kept(model, on.on_gpu);
  if (model.has_outputs()) check_units(model);
  if (on.pipe.ranks > 1) check_pipeline(config, *this, model);
  std::vector<HalfPass> schedule;  // empty if units declare no outputs
  if (on.pipe.ranks > 1 || model.has_outputs())
    schedule = schedule_of(timetable_of({config.pipeline, on.pipe.ranks, batch.accumulation}),
                           on.pipe.rank, model);
  check_rank_independent(config, on);
  if (on.tensor.ranks > 1) check_split_matrices(model, updates);
  if (on.on_gpu) check_offload_of_gpu(config, *this);
  check_offload(config, *this);
  check_inner_group(config, *this);
  inputs = make_plan_inputs(*this, model, config);
  inputs.room = room_of(schedule, std::max(1, static_cast<int>(model.runs.size())));
  check_chunks(*this, config.optimizer.type);
  const bool own_slots = strict && !on.on_gpu;
  parameter_memory = own_slots ? assign_slots(layout, {one_each, false}) : inputs.parameter_slots;
  gradient_memory = own_slots ? assign_slots(layout, {one_each, true}) : inputs.gradient_slots;
  arrays = ArrayTable(*this);
  steps = make_step_plans(inputs, sync_each());
  if (!schedule.empty())
    steps.tasks = with_own_scopes(make_task_plan(inputs, sync_each(), schedule), own_micro_steps());
  check_plans(inputs, steps);
}

Layout EnginePlan::layout_of(const Model& other) const {
  return make_layout(other, grid, layout_options, wire);
}

std::map<std::string, std::string> EnginePlan::summation_terms() const {
  GradientSync shown = sync;
  if (rank_independent())
    return {{"gradient_sync", text_of(&shown)},
            {"micro_batches", std::to_string(batch.micro_batches)},
            {"rank_independent_group", std::to_string(policy.fold->group)}};
  std::map<std::string, std::string> terms{
      {"ranks", std::to_string(grid.data_ranks())},
      {"accumulation", std::to_string(batch.accumulation)},
      {"gradient_sync", batch.accumulation > 1 ? text_of(&shown) : "last"}};
  if (batch.accumulation > 1 && sync == GradientSync::inner)
    terms["inner_group_size"] = std::to_string(inner_group);
  return terms;
}

void EnginePlan::change_order(std::vector<int> order) {
  inputs.order = std::move(order);
  steps = make_step_plans(inputs, sync_each());
  check_plans(inputs, steps);
}

StepPlan EnginePlan::learn_order(std::vector<int> order, const std::vector<int>& used, bool last) {
  inputs.order = std::move(order);
  steps = make_step_plans(inputs, sync_each());
  HalfPlans halves = make_half_plans(inputs, used, sync_each(), last);
  check_plans(inputs, steps, &halves);
  return std::move(halves.backward);
}

}  // namespace zero::detail
