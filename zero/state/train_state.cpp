#include "zero/state/train_state.h"

#include <algorithm>
#include <cmath>

#include "zero/base/time_limit.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/strict_mode.h"

namespace zero::detail {

namespace {

PlanRank plan_rank(RuntimeCore& runtime, Ranks& ranks) {
  PlanRank on{runtime.topology().rank, runtime.topology().size, !runtime.device().is_host(),
              strict_mode()};
  if (Ranks* group = ranks.model_parallel())
    on.model_parallel = {group->topology().rank, group->topology().size};
  on.node_ranks = runtime.topology().neighbours_per_node();
  return on;
}

// Of unequal nodes, the smallest group is one that every rank can follow.
int ranks_of_node(Ranks& ranks) {
  return static_cast<int>(std::ranges::min(
      ranks.gather_words("start-up agreement on the reduce group", {ranks.topology().local_size})));
}

}  // namespace

TrainState::TrainState(RuntimeCore& runtime_core, const ModelSpec& spec, Config given)
    : runtime(runtime_core),
      ranks(runtime),
      config(std::move(given)),
      model(spec.declared()),
      plan(model, config, plan_rank(runtime, ranks)),
      arrays(plan),
      buffers(runtime, model),
      scaler(config.fp16_enabled ? optim::LossScaler(config.loss_scale) : optim::LossScaler()),
      has_values(model.params.size(), 0) {
  if (model.params.empty()) throw UsageError("the model declares no parameter");
  for (const FlatUnit& flat : plan.layout.flat_units) subjects.push_back("unit " + flat.name);
  agree_at_start();
  if (plan.inputs.offload.offloads())
    offload = std::make_unique<OffloadTier>(runtime, plan.inputs, arrays, config);
  store =
      std::make_unique<StateStore>(runtime, plan.layout, arrays, plan.inputs.chunks, offload.get());
}

void TrainState::agree_at_start() {
  comm::CallTerms terms;
  terms.time_limit = time_limit_of(config.zero_core.time_limit_seconds);
  terms.deterministic = config.zero_core.deterministic;
  ranks.set_terms(terms);
  runtime.device().waits().set_limit(terms.time_limit);
  if (const int nodes = runtime.topology().node_count;
      config.checkpoint.use_node_local_storage && nodes > 1)
    throw ConfigError("checkpoint.use_node_local_storage: a checkpoint is one directory that all " +
                      std::to_string(nodes) +
                      " nodes see; set it to false and save to a shared file system");
  const std::string text = describe(config) + (plan.strict ? "ZERO_STRICT = 1\n" : "");
  agree_on_text(ranks, "config", text);
  if (Ranks* model_parallel = ranks.model_parallel())
    agree_on_text(*model_parallel, "config", text);
  agree_on_text(ranks, "model", model.describe());
  agree_on_text(ranks, "layout", plan.layout.describe(model));
  if (config.zero_core.verify_comm && !runtime.device().is_host())
    throw ConfigError(
        "zero_core.verify_comm: payloads are compared in host memory, not yet in that of GPUs; set "
        "it to false, or run on CPU ranks");
  terms.verify = config.zero_core.verify_comm;
  terms.reduce_groups = plan.reduce_groups;
  if (terms.reduce_groups == comm::ReduceGroups()) terms.reduce_groups = ranks_of_node(ranks);
  ranks.set_terms(terms);
  if (plan.grid.replicas() > 1) split_ranks();
  if (const int sharing = policy().second_copy_ranks; sharing > 0)
    second_copies_ = ranks.split("the start of second copies", rank() / sharing, rank() % sharing);
  const int sums = policy().first_sum_ranks(), gathers = policy().wire.gather_hop;
  if (sums > 0) reduce_hops_ = split_in_hops(sums);
  if (gathers > 0 && gathers != sums) gather_hops_ = split_in_hops(gathers);
}

HopRanks TrainState::split_in_hops(int first_ranks) {
  const int group = rank() / first_ranks, number = rank() % first_ranks;
  const comm::ReduceGroups& groups = ranks.terms().reduce_groups;
  HopRanks hops{ranks.split("the start of exchanges in groups", group, number),
                ranks.split("the start of exchanges over groups",
                            plan.grid.group(rank()) * first_ranks + number, group)};
  hops.first->set_reduce_groups(groups.within(first_ranks));
  hops.second->set_reduce_groups(groups.over(first_ranks));
  return hops;
}

void TrainState::split_ranks() {
  const RankGrid& grid = plan.grid;
  const int group = grid.group(rank()), number = grid.in_group(rank());
  const comm::ReduceGroups& groups = ranks.terms().reduce_groups;
  shard_group_ = ranks.split("the start of shard groups", group, number);
  shard_group_->set_reduce_groups(groups.within(grid.shard_ranks));
  replicas_ = ranks.split("the start of replicas", number, group);
  replicas_->set_reduce_groups(groups.over(grid.shard_ranks));
  if (policy().updates == Portion::slice && !plan.matrices.empty())
    by_slice_ = ranks.split("the start of the update of matrices", 0, grid.slice_of(rank()));
}

void TrainState::for_groups(const std::function<void(Ranks&)>& each) {
  for (Ranks* group : {&ranks, shard_group_.get(), replicas_.get(), by_slice_.get(),
                       second_copies_.get(), reduce_hops_.first.get(), reduce_hops_.second.get(),
                       gather_hops_.first.get(), gather_hops_.second.get()})
    if (group != nullptr) each(*group);
}

std::int64_t TrainState::control_bytes() {
  std::int64_t bytes = 0;
  for_groups([&](const Ranks& group) { bytes += group.control_bytes(); });
  return bytes;
}

void TrainState::require_values(const std::string& purpose) const {
  const auto lacking = std::find(has_values.begin(), has_values.end(), char{0});
  if (lacking == has_values.end()) return;
  const bool none = std::find(has_values.begin(), has_values.end(), char{1}) == has_values.end();
  throw UsageError((none ? "the parameters have"
                         : param(static_cast<int>(lacking - has_values.begin())).name + " has") +
                   " no values" + purpose + ": call Engine::initialize(), " +
                   (none ? "load_weights() or resume()" : "initialize_rest() or load_weights()"));
}

void TrainState::refuse_non_finite(const std::string& file, const ParamShard& shard) const {
  if (config.zero_core.allow_non_finite_weights) return;
  const auto at = std::find_if_not(shard.values.begin(), shard.values.end(),
                                   [](float value) { return std::isfinite(value); });
  if (at == shard.values.end()) return;
  throw LoadError(file + ": " + std::string(shard.name) + " is not finite at element " +
                  std::to_string(shard.begin + (at - shard.values.begin())) +
                  "; zero_core.allow_non_finite_weights loads it nevertheless");
}

}  // namespace zero::detail
