#include "zero/plan/rank_groups.h"

#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

// The ranks of a group differ in these coordinates, the last of which is the fastest.
struct Part {
  Axis axis{};
  // If not 0, the axis is cut into groups of this many neighbors, as by nodes: the part is the
  // place inside of a group, or the number of the group.
  int inside = 0;
  bool between = false;
};

struct RankGroup {
  std::vector<Part> parts;
  int sums_within = 0, sums_over = 0;
};

// Returns no parts if the plan does not need the group.
RankGroup group_of(const EnginePlan& plan, GroupId group) {
  const StatePolicy& policy = plan.policy;
  const int shards = plan.grid.shard_ranks();
  const bool replicas = plan.grid.replicas() > 1;
  const int sums = policy.first_sum_ranks(), gathers = plan.wire.gather_hop;
  const bool gathers_apart = gathers > 0 && gathers != sums;
  const auto inside = [](int ranks) { return RankGroup{{{Axis::shard, ranks}}, ranks, 0}; };
  const auto between = [](int ranks) { return RankGroup{{{Axis::shard, ranks, true}}, 0, ranks}; };
  switch (group) {
    case GroupId::shard:
      return replicas ? RankGroup{{{Axis::shard}}, shards, 0} : RankGroup();
    case GroupId::replicas:
      return replicas ? RankGroup{{{Axis::replicate}}, 0, shards} : RankGroup();
    case GroupId::slices:
      if (!replicas || policy.updates != Holding::slice || plan.matrices.empty()) return {};
      return {{{Axis::shard}, {Axis::replicate}}};
    case GroupId::second_copy:
      return policy.second_copy_ranks > 0 ? RankGroup{{{Axis::shard, policy.second_copy_ranks}}}
                                          : RankGroup();
    case GroupId::reduce_inside:
      return sums > 0 ? inside(sums) : RankGroup();
    case GroupId::reduce_between:
      return sums > 0 ? between(sums) : RankGroup();
    case GroupId::gather_inside:
      return gathers_apart ? inside(gathers) : RankGroup();
    case GroupId::gather_between:
      return gathers_apart ? between(gathers) : RankGroup();
    default:
      return {};
  }
}

}  // namespace

GroupId update_group(const EnginePlan& plan) {
  if (plan.policy.updates != Holding::slice) return GroupId::shard;
  return GroupId::slices;
}

std::optional<GroupSplit> split_of(const EnginePlan& plan, GroupId group, int data_rank) {
  const RankGroup needed = group_of(plan, group);
  if (needed.parts.empty()) return {};
  GroupSplit split{0, 0, needed.sums_within, needed.sums_over};
  // The place that the ranks of a group have in common, on the rest of each axis.
  struct Rest {
    int place = 0, size = 1;
  };
  Rest replicate{plan.grid.group(data_rank), plan.grid.replicas()};
  Rest shard{plan.grid.in_group(data_rank), plan.grid.shard_ranks()};
  for (const auto& [axis, inside, between] : needed.parts) {
    Rest& rest = axis == Axis::shard ? shard : replicate;
    const Rest whole = rest;
    const int neighbors = inside == 0 ? whole.size : inside;
    const Rest inner{whole.place % neighbors, neighbors};
    const Rest outer{whole.place / neighbors, whole.size / neighbors};
    const Rest own = between ? outer : inner;
    rest = between ? inner : outer;
    split.key = split.key * own.size + own.place;
  }
  split.color = replicate.place * shard.size + shard.place;
  return split;
}

}  // namespace zero::detail
