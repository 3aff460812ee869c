// Where the parameter, the gradient and the optimizer state of a rank rest: the one table that
// knows ZeRO stages. Everything else reads placements (after Megatron-FSDP's placement vocabulary).
#pragma once

#include "zero/config.h"

namespace zero::detail {

enum class Rest {
  replicate,  // every rank holds the whole
  partial,    // every rank holds a whole-size summand
  shard,      // every rank holds its slice
};

struct Placement {
  const char* strategy = "";  // for people: "stage 3 (FULL_SHARD)"
  Rest parameter = Rest::replicate;
  Rest gradient = Rest::replicate;
  Rest optimizer = Rest::replicate;
  bool reshard_after_forward = false;  // of a sharded parameter
  bool sync_each = false;              // default of gradient_sync
};

// What strict mode makes of a row: what the most sharded one shards, with the row's own default of
// gradient_sync, on which bits depend.
Placement strict_placement(const Placement& row);

// The row of the table. Throws ConfigError for a stage that does not exist.
Placement placement_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core);

}  // namespace zero::detail
