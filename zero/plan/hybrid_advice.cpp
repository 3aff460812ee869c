#include "zero/plan/hybrid_advice.h"

#include "comm/wire/layout.h"
#include "zero/base/number_text.h"

namespace zero::detail {

namespace {

using MemoryOf = std::function<std::int64_t(const EnginePlan&)>;

// Bytes of one micro step and its update, for one rank.
struct Cost {
  double between_nodes;
  std::int64_t memory;
};

// Bytes of its slices that a rank sends to one other node in gathers and reductions over all ranks.
// A collective sends whole units to every other node once, for any number of ranks per node. Second
// copies are gathered inside a node.
std::int64_t sent_to_a_node(const EnginePlan& plan) {
  std::int64_t bytes = 0;
  for (const Instruction& instruction : plan.steps.only.instructions) {
    const bool gathers = instruction.op == Op::gather;
    if (!gathers && instruction.op != Op::reduce) continue;
    for (const SegmentId& id : plan.layout.segments_of(instruction.target)) {
      const Segment& segment = plan.layout.segment(id);
      if (!gathers && !segment.trainable) continue;
      const Route route = gathers ? plan.routes.gather(id) : plan.routes.sums(id).back();
      bytes += encoded_bytes(route.legs.back().codec, segment.slice, plan.policy.precision.compute);
    }
  }
  return bytes;
}

// Exchanges inside groups do not leave the node; over the groups, sums are scattered and new
// parameters gathered.
Cost cost_of(const EnginePlan& plan, const MemoryOf& memory_of) {
  const double nodes = static_cast<double>(plan.on.ranks) / plan.on.node_ranks;
  auto bytes = static_cast<double>(sent_to_a_node(plan));
  std::int64_t gradients = 0;
  for (const FlatUnit& flat : plan.layout.flat_units) gradients += flat.trainable_elements();
  if (plan.grid.replicas() > 1)
    bytes =
        static_cast<double>(2 * gradients * size_of(plan.policy.precision.compute)) / plan.on.ranks;
  return {bytes * (nodes - 1), memory_of(plan)};
}

}  // namespace

std::string hybrid_advice(const EnginePlan& plan, const Config& config, const MemoryOf& memory_of) {
  const PlanRank& on = plan.on;
  const bool chosen = config.zero_core.shard_group_size || config.zero_core.rank_independent ||
                      plan.policy.second_copy_ranks > 0 || plan.policy.wire.encodes();
  if (on.node_ranks <= 1 || on.node_ranks == on.ranks || chosen || plan.strict ||
      plan.configured.parameter != Placement::shard || plan.policy.parameter_home != Tier::memory)
    return "";
  Config hybrid = config;
  hybrid.zero_core.reduce_group_size = 0;
  hybrid.zero_core.wider_reduce_groups.clear();
  hybrid.zero_core.inner_group_size.reset();
  Config encoded = hybrid;
  hybrid.zero_core.shard_group_size = 0;
  hybrid.zero_core.optimizer_over_all_ranks = true;
  encoded.zero_optimization.hpz_partition_size = on.node_ranks;
  encoded.zero_optimization.quantized_weights = true;
  encoded.zero_optimization.quantized_gradients = true;
  const auto cost_with = [&](const Config& other) {
    return cost_of(EnginePlan(*plan.inputs.model, other, on), memory_of);
  };
  const Cost now = cost_of(plan, memory_of), then = cost_with(hybrid);
  if (then.between_nodes >= now.between_nodes) return "";
  const Cost fewer = cost_with(encoded);
  const auto text = [](double bytes) { return byte_text(static_cast<std::int64_t>(bytes)); };
  return "a rank sends " + text(now.between_nodes) +
         " between nodes in a micro step and its update; with zero_core.shard_group_size \"node\" "
         "and optimizer_over_all_ranks true (HFSDP) it would be " +
         text(then.between_nodes) + ", for " + byte_text(then.memory - now.memory) +
         " more memory per rank; with zero_hpz_partition_size " + std::to_string(on.node_ranks) +
         ", zero_quantized_weights and zero_quantized_gradients (ZeRO++) it would be " +
         text(fewer.between_nodes) + ", for " + byte_text(fewer.memory - now.memory) +
         " more, and losses that are not quite the same";
}

}  // namespace zero::detail
