// The hybrid strategies: parameters are sharded inside groups of ranks, and the groups replicate
// each other.
#pragma once

#include "zero/config.h"

namespace hybrid {

struct Row {
  const char* name;
  bool reshards, over_all_ranks;
};
inline constexpr Row rows[] = {{"HYBRID_SHARD", true, false},
                               {"HYBRID_SHARD_ZERO2", false, false},
                               {"HFSDP", true, true},
                               {"HFSDP without resharding", false, true}};

inline zero::Config in_groups(zero::Config config, const Row& row, int group) {
  config.zero_optimization.stage = 3;
  config.zero_core.shard_group_size = group;
  config.zero_core.reshard_after_forward = row.reshards;
  config.zero_core.optimizer_over_all_ranks = row.over_all_ranks;
  config.zero_core.reduce_group_size = 0;
  return config;
}

// Returns any stage with sums taken in the same groups first.
inline zero::Config with_sums_of(zero::Config config, int group) {
  config.zero_core.reduce_group_size = group;
  return config;
}

}  // namespace hybrid
