// Sharding strategies: how the parameters, gradients and optimizer state of a model are divided
// over the ranks. This table alone knows ZeRO stages; everything else asks for placements (the
// vocabulary of Megatron-FSDP).
#pragma once

#include "zero/config.h"
#include "zero/plan/layout.h"

namespace zero::detail {

enum class Placement {
  replicate,  // every rank holds the whole
  partial,    // every rank holds a summand of the whole size
  shard,      // every rank holds its shard
};

struct Strategy {
  const char* strategy = "";  // as users know it: "stage 3 (FULL_SHARD)"
  // Over the ranks of a shard group, which are all ranks but for the hybrid strategies.
  Placement parameter = Placement::replicate;
  Placement gradient = Placement::replicate;  // between micro steps
  Placement optimizer = Placement::replicate;
  // Over the groups of a hybrid strategy, where everything else is replicated.
  Placement optimizer_across = Placement::replicate;
  bool reshard_after_forward = false;  // where parameters are sharded
  // The default of gradient_sync: what micro steps but the last do.
  GradientSync sync = GradientSync::last;
};

// What strict mode makes of a strategy: it shards as the most sharded one does, and keeps the
// default of gradient_sync, on which the bits of results depend.
Strategy strict_strategy(const Strategy& strategy);

// The row of the table. Throws ConfigError for a stage that does not exist, and for one that has no
// hybrid form where the grid has replicas.
Strategy strategy_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core,
                      const RankGrid& grid = {});

// The grid that the config asks for, of ranks of which each node has so many neighbouring ones; -1
// where nodes are not alike. Throws ConfigError where the groups do not divide the ranks.
RankGrid grid_for(const CoreOptions& zero_core, int ranks, int node_ranks);
// The ranks that share a second copy of gathered parameters (ZeRO++'s hpZ); 0 where there is none.
// Throws ConfigError where they do not divide the ranks, or where shard groups are asked for too.
int second_copy_ranks(const ZeroOptions& zero_optimization, const RankGrid& asked);
// The ranks that count as a node, whose sums are formed first: the config may say how many.
int reduce_group_of(const CoreOptions& zero_core, int node_ranks);
// The ranks of the groups inside which a reduction that is cut in two, in time (gradient_sync
// inner) or by a second encoding (qgZ), sums first: those of a shard group if there are replicas;
// else those that the config names, so that a stage can sum as shard groups do. Formats that differ
// inside a node cut at the node. Throws ConfigError if a reduction does not sum in such groups.
int inner_group_of(const CoreOptions& zero_core, const RankGrid& grid, int node_ranks,
                   bool formats_differ);

}  // namespace zero::detail
