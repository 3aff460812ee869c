// The rows of a plan: each strategy, offload and wire format, with the config keys that select it.
#pragma once

#include <string>
#include <vector>

#include "tools/planner/cluster.h"
#include "zero/config.h"

namespace zero::planner {

struct PlanRow {
  std::string name;  // "3+hpz/8", as --rows takes it; "config": the file as it is
  Text overrides = {};
  // Complete rows select a strategy: what the file sets for another one does not apply to them.
  bool complete() const { return name != "config"; }
  bool exact = true;  // gradients and parameters travel unencoded
};

// The keys that select a strategy, and are at their defaults in a complete row that does not set
// them.
inline constexpr const char* strategy_keys[] = {
    "zero_core.shard_group_size", "zero_core.optimizer_over_all_ranks",
    "zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size",
    "zero_core.wire"};

// Every row that exists on this cluster: stages, groups of a node, offload and wire formats.
std::vector<PlanRow> all_rows(const Cluster& cluster);
// "0,1,3+cpu,3+reduce=int4". Throws ConfigError that names --rows and the item.
std::vector<PlanRow> parse_rows(const std::string& list);

}  // namespace zero::planner
