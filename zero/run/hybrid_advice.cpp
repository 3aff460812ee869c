#include "zero/run/hybrid_advice.h"

#include "zero/base/number_text.h"

namespace zero::detail {

namespace {

// Bytes of one micro step and its update, of one rank.
struct Cost {
  double between_nodes;
  std::int64_t memory;
};

// A collective of whole units over all ranks moves them to every other node once, however many
// ranks it has; inside groups of a node nothing leaves it, and over the groups sums are scattered
// and new parameters gathered.
Cost cost_of(const Model& model, const Config& config, const PlanRank& on) {
  const EnginePlan plan(model, config, on);
  const PlanTraffic traffic = traffic_of(plan.steps.only, plan.layout);
  const bool groups = plan.grid.replicas() > 1;
  const std::int64_t elements = groups ? 2 * traffic.reduced : traffic.gathered + traffic.reduced;
  const double nodes = static_cast<double>(on.ranks) / on.node_ranks;
  const ModelState state(plan.layout, plan.parameter_memory, plan.gradient_memory, plan.policy,
                         plan.inputs.offload);
  return {static_cast<double>(elements * size_of(plan.policy.precision.compute)) * (nodes - 1) /
              on.ranks,
          state.bytes()};
}

}  // namespace

std::string hybrid_advice(const TrainState& train) {
  const comm::Topology& topology = train.runtime.topology();
  const int on_node = topology.neighbours_per_node();
  const PlanRank on{train.rank(), topology.size, train.policy().on_gpu, false, {}, on_node};
  const Config& config = train.config;
  const bool compressed = train.policy().wire.encodes();
  const bool chosen =
      config.zero_core.shard_group_size || train.policy().second_copy_ranks > 0 || compressed;
  if (train.rank() != 0 || topology.node_count == 1 || on_node <= 1 || chosen ||
      train.plan.strict || train.plan.configured.parameter != Placement::shard ||
      train.policy().parameter_home != Home::device)
    return "";
  Config hybrid = config;
  hybrid.zero_core.shard_group_size = 0;
  hybrid.zero_core.optimizer_over_all_ranks = true;
  hybrid.zero_core.reduce_group_size = 0;
  hybrid.zero_core.wider_reduce_groups.clear();
  const Cost now = cost_of(train.model, config, on), then = cost_of(train.model, hybrid, on);
  if (then.between_nodes >= now.between_nodes) return "";
  const auto text = [](double bytes) { return byte_text(static_cast<std::int64_t>(bytes)); };
  return "a rank sends " + text(now.between_nodes) +
         " between nodes in a micro step and its update; with zero_core.shard_group_size \"node\" "
         "and optimizer_over_all_ranks true (HFSDP) it would be " +
         text(then.between_nodes) + ", for " + byte_text(then.memory - now.memory) +
         " more memory per rank";
}

}  // namespace zero::detail
