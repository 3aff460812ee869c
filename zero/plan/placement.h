// Sharding strategies: how the parameters, gradients and optimizer state of a model are divided
// over the ranks. Only this table depends on ZeRO stages; all other code uses placements (the
// vocabulary of Megatron-FSDP).
#pragma once

#include "zero/config.h"
#include "zero/plan/layout.h"

namespace zero::detail {

enum class Placement {
  replicate,  // every rank holds the whole
  partial,    // every rank holds a summand of the whole size
  shard,      // every rank holds a shard
};

struct Strategy {
  const char* strategy = "";  // user-visible name: "stage 3 (FULL_SHARD)"
  // Placement within a shard group. One group spans all ranks, except for the hybrid strategies.
  Placement parameter = Placement::replicate;
  Placement gradient = Placement::replicate;  // while micro steps accumulate
  Placement optimizer = Placement::replicate;
  // Placement across the groups of a hybrid strategy; everything else is replicated.
  Placement optimizer_across = Placement::replicate;
  bool reshard_after_forward = false;  // if parameters are sharded
  // The default of gradient_sync: when gradients are reduced if micro steps accumulate.
  GradientSync sync = GradientSync::last;
};

// The strategy in strict mode: shards like the most sharded strategy, but keeps the default of
// gradient_sync, on which results depend bitwise.
Strategy strict_strategy(const Strategy& strategy);

// Returns the row of the table. Throws ConfigError for a stage that does not exist, and for a stage
// without a hybrid form if the grid has replicas.
Strategy strategy_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core,
                      const ProcessGrid& grid = {});

// Returns the grid that the config requests. `node_ranks` is the number of consecutive data ranks
// per node, or -1 if nodes differ. Throws ConfigError if the groups do not divide the data ranks.
ProcessGrid grid_for(const CoreOptions& zero_core, int data_ranks, int node_ranks,
                     int tensor_ranks = 1, int stages = 1);
// Returns the number of ranks that share a second copy of gathered parameters (ZeRO++'s hpZ), or 0
// without one. Throws ConfigError if this number does not divide the ranks, or if shard groups are
// requested too.
int second_copy_ranks(const ZeroOptions& zero_optimization, const ProcessGrid& asked);
// Returns the number of ranks that count as a node and sum first; the config may override this.
int reduce_group_of(const CoreOptions& zero_core, int node_ranks);
// Returns the group size of the first stage of a reduction that is split in time (gradient_sync
// inner) or by a second encoding (qgZ): shard groups if there are replicas; otherwise the groups
// that the config names, so that a stage can sum as shard groups do. If formats differ inside a
// node, the split is at the node. Throws ConfigError if a reduction does not sum in such groups.
int inner_group_of(const CoreOptions& zero_core, const ProcessGrid& grid, int node_ranks,
                   bool formats_differ);

}  // namespace zero::detail
