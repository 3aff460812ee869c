// Sharding strategies: how the parameters, gradients and optimizer state of a model are divided
// over the ranks. This table alone knows ZeRO stages; everything else asks for placements (the
// vocabulary of Megatron-FSDP).
#pragma once

#include "zero/config.h"

namespace zero::detail {

enum class Placement {
  replicate,  // every rank holds the whole
  partial,    // every rank holds a summand of the whole size
  shard,      // every rank holds its shard
};

struct Strategy {
  const char* strategy = "";  // as users know it: "stage 3 (FULL_SHARD)"
  Placement parameter = Placement::replicate;
  Placement gradient = Placement::replicate;  // between micro steps
  Placement optimizer = Placement::replicate;
  bool reshard_after_forward = false;  // where parameters are sharded
  bool sync_each = false;              // the default of gradient_sync is `each`
};

// What strict mode makes of a strategy: it shards as the most sharded one does, and keeps the
// default of gradient_sync, on which the bits of results depend.
Strategy strict_strategy(const Strategy& strategy);

// The row of the table. Throws ConfigError for a stage that does not exist.
Strategy strategy_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core);

}  // namespace zero::detail
