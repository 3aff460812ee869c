// The groups of ranks that the strategy and formats of a training run need to exchange arrays: sets
// of axes of the process grid, or the inner or outer part of one axis.
#pragma once

#include <cstdint>
#include <optional>

#include "zero/plan/process_grid.h"

namespace zero::detail {

struct EnginePlan;

// In the order of their creation.
enum class GroupId : std::uint8_t {
  everyone,     // all ranks of the grid
  tensor,       // the ranks that hold parts of the same parameters
  pipe,         // the ranks that hold the stages of the same model
  link_before,  // this rank and that of the stage before
  link_after,
  link_around,     // the ranks of the last stage and the first, if stages have several runs
  data,            // the ranks that sum gradients
  shard,           // the ranks that share a copy of the shards; data without replicas
  replicas,        // the ranks that hold the same shard
  slices,          // data, in the order of owned slices
  second_copy,     // the ranks that share a second copy of gathered parameters
  reduce_inside,   // first hop of reductions
  reduce_between,  // second hop, among ranks of equal number in the groups
  gather_inside,   // hops of gathers, if the groups differ from those of reductions
  gather_between,
};
inline constexpr int group_id_count = 15;

// A rank's arguments when a group is split off from the data ranks: groups are the ranks of equal
// color, ordered by key.
struct GroupSplit {
  int color = 0, key = 0;
  // The order of sums: that of groups inside this many ranks, or across groups of this many; 0 and
  // 0: the order over all ranks.
  int sums_within = 0, sums_over = 0;
};

// Returns a data rank's place in a group of data ranks; none if the plan needs no such group, or if
// the group is all data ranks.
std::optional<GroupSplit> split_of(const EnginePlan& plan, GroupId group, int data_rank);
// The ranks that share the update, in the order of slices or shards.
GroupId update_group(const EnginePlan& plan);

}  // namespace zero::detail
