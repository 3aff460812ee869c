#include "zero/plan/placement.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr Placement replicate = Placement::replicate, partial = Placement::partial,
                    shard = Placement::shard;
using enum GradientSync;

constexpr Strategy strategies[] = {
    {"stage 0 (NO_SHARD)", replicate, replicate, replicate, replicate, false, last},
    {"stage 1", replicate, partial, shard, replicate, false, last},
    {"stage 2", replicate, shard, shard, replicate, false, each},
    {"stage 3 (FULL_SHARD)", shard, shard, shard, replicate, true, each},
};
constexpr Strategy shard_grad_op = {"SHARD_GRAD_OP", shard, shard, shard, replicate, false, each};
// Indexed [optimizer_over_all_ranks][reshard_after_forward].
constexpr Strategy hybrid[2][2] = {
    {{"HYBRID_SHARD_ZERO2", shard, shard, shard, replicate, false, inner},
     {"HYBRID_SHARD", shard, shard, shard, replicate, true, inner}},
    {{"HFSDP without resharding after forward", shard, shard, shard, shard, false, inner},
     {"HFSDP", shard, shard, shard, shard, true, inner}},
};

constexpr int fully_sharded = std::size(strategies) - 1;

}  // namespace

Strategy strict_strategy(const Strategy& strategy) {
  Strategy strict = strategies[fully_sharded];
  strict.strategy = strategy.strategy;
  strict.optimizer_across = strategy.optimizer_across;
  strict.sync = strategy.sync;
  return strict;
}

Strategy strategy_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core,
                      const ProcessGrid& grid) {
  const int stage = zero_optimization.stage;
  if (stage < 0 || stage >= std::ssize(strategies))
    throw ConfigError("zero_optimization.stage is " + std::to_string(stage) +
                      "; expected 0, 1, 2 or 3");
  const bool reshards = zero_core.reshard_after_forward,
             across = zero_core.optimizer_over_all_ranks;
  if (grid.replicas() > 1) {
    if (stage != fully_sharded)
      throw ConfigError("zero_core.shard_group_size is " + std::to_string(grid.shard_ranks()) +
                        ", which needs zero_optimization.stage 3: parameters are sharded inside "
                        "groups of ranks; stage " +
                        std::to_string(stage) + " keeps them whole");
    // With groups of one rank, only state that is sharded across groups is sharded.
    return grid.shard_ranks() == 1 ? strategies[across ? 1 : 0] : hybrid[across][reshards];
  }
  const Strategy& row = strategies[stage];
  return row.reshard_after_forward && !reshards ? shard_grad_op : row;
}

ProcessGrid grid_for(const CoreOptions& zero_core, int data_ranks, int node_ranks, int tensor_ranks,
                     int stages) {
  if (!zero_core.shard_group_size) return {1, data_ranks, tensor_ranks, stages};
  const bool by_node = *zero_core.shard_group_size == 0;
  if (by_node && node_ranks < 0)
    throw ConfigError(
        "zero_core.shard_group_size is \"node\", and nodes have different numbers of ranks, or "
        "ranks that are not neighbors: start the same number on each with mpirun --map-by slot "
        "(srun --distribution=block), or give a number");
  const std::int64_t size = by_node ? node_ranks : *zero_core.shard_group_size;
  if (size > data_ranks || data_ranks % size != 0)
    throw ConfigError(
        "zero_core.shard_group_size is " + (by_node ? "\"node\", and a node has " : std::string()) +
        std::to_string(size) + (by_node ? " ranks" : "") + ", which does not divide " +
        std::to_string(data_ranks) + " ranks: give a divisor of it, or leave the key out");
  return {static_cast<int>(data_ranks / size), static_cast<int>(size), tensor_ranks, stages};
}

int second_copy_ranks(const ZeroOptions& zero_optimization, const ProcessGrid& asked) {
  const std::int64_t size = zero_optimization.hpz_partition_size;
  if (size <= 1 || zero_optimization.stage != fully_sharded) return 0;
  const std::string key = "zero_optimization.zero_hpz_partition_size is " + std::to_string(size);
  if (asked.replicas() > 1)
    throw ConfigError(key + ", and zero_core.shard_group_size (mics_shard_size) " +
                      std::to_string(asked.shard_ranks()) +
                      ": parameters that are sharded in groups need no second copy; leave one out");
  if (size >= asked.data_ranks()) return 0;
  if (asked.data_ranks() % size != 0)
    throw ConfigError(key + ", which does not divide " + std::to_string(asked.data_ranks()) +
                      " ranks: give a divisor of it, or 1 for no second copy");
  return static_cast<int>(size);
}

int reduce_group_of(const CoreOptions& zero_core, int node_ranks) {
  return zero_core.reduce_group_size > 0 ? zero_core.reduce_group_size : node_ranks;
}

int inner_group_of(const CoreOptions& zero_core, const ProcessGrid& grid, int node_ranks,
                   bool formats_differ) {
  const int node = reduce_group_of(zero_core, node_ranks);
  const std::vector<int>& wider = zero_core.wider_reduce_groups;
  int largest = node;
  for (const int size : wider)
    if (size < grid.data_ranks()) largest = size;
  const bool groups = grid.replicas() > 1;
  const int chosen = groups ? grid.shard_ranks() : formats_differ ? node : largest;
  if (!zero_core.inner_group_size) return chosen;
  const std::int64_t given = *zero_core.inner_group_size;
  const std::string key = "zero_core.inner_group_size is " + std::to_string(given);
  if ((groups || formats_differ) && given != chosen)
    throw ConfigError(key + ", and gradients are summed in " +
                      (groups ? "shard groups of " : "nodes of ") + std::to_string(chosen) +
                      " ranks first" +
                      (groups ? "" : ", as zero_core.wire.reduce_inside differs from reduce") +
                      ": give this value, or leave the key out");
  if (given != node && std::ranges::count(wider, given) == 0 && !groups)
    throw ConfigError(key +
                      ", and sums are formed in the groups of zero_core.reduce_group_size, which "
                      "has no such number: give one of those, or leave the key out");
  return static_cast<int>(given);
}

}  // namespace zero::detail
