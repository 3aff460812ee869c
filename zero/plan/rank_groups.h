// The groups of ranks that exchange arrays in a run, as its strategy and its formats need them.
#pragma once

#include <cstdint>
#include <optional>

namespace zero::detail {

struct EnginePlan;

// Ranks that exchange arrays. The order is the one in which the groups are made.
enum class GroupId : std::uint8_t {
  all,
  shard,           // the ranks that share one copy of the shards; all without replicas
  replicas,        // the ranks that hold the same shard
  slices,          // all, in the order of the slices that they own
  second_copy,     // the ranks that share a second copy of gathered parameters
  reduce_inside,   // the first hop of reductions
  reduce_between,  // the second one, among ranks of equal number in their groups
  gather_inside,   // the same of gathers, if they have other groups than reductions
  gather_between,
};
inline constexpr int group_id_count = 9;

// A rank's place when a group is split off from all ranks: groups are the ranks of equal color,
// ordered by key.
struct GroupSplit {
  int color = 0, key = 0;
  // The order of sums: that of the groups inside so many ranks, or over groups of so many; 0 and 0:
  // as over all ranks.
  int sums_within = 0, sums_over = 0;
};

// The place of a rank in a group; none if the plan needs no such group, or if it is all ranks.
std::optional<GroupSplit> split_of(const EnginePlan& plan, GroupId group, int rank);
// The ranks that share the update, in the order of the parts that they update.
GroupId update_group(const EnginePlan& plan);

}  // namespace zero::detail
