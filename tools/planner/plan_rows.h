// The rows of a plan: strategies, offload and wire formats, each with its config keys.
#pragma once

#include <string>
#include <vector>

#include "tools/planner/cluster.h"
#include "zero/config.h"

namespace zero::planner {

struct PlanRow {
  std::string name;  // "3+hpz/8", as in --rows; "config": the unchanged file
  Text overrides = {};
  // A complete row selects a strategy, so the file's keys for another strategy do not apply.
  bool complete() const { return !name.starts_with("config"); }
  bool exact = true;  // gradients and parameters are sent unencoded
  // Left out of a result if without a gain of time or memory over the varied row.
  bool optional = false;
};

// The keys that select a strategy. In a complete row, keys that the row does not set have the
// defaults, whatever the file sets.
inline constexpr const char* strategy_keys[] = {
    "zero_core.shard_group_size", "zero_core.optimizer_over_all_ranks",
    "zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size",
    "zero_core.wire"};

// Returns each row with each number of stages of a pipeline, "1,2,4". Throws ConfigError that names
// --pipeline-stages.
std::vector<PlanRow> with_stages(const std::vector<PlanRow>& rows, const std::string& list);
// Returns every row that is possible on this cluster: stages, groups of a node, offload and wire
// formats.
std::vector<PlanRow> all_rows(const Cluster& cluster);
// Parses "0,1,3+cpu,3+reduce=int4,3/p2". Throws ConfigError that names --rows and the item.
std::vector<PlanRow> parse_rows(const std::string& list);

}  // namespace zero::planner
