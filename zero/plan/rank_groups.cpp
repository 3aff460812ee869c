#include "zero/plan/rank_groups.h"

#include "zero/plan/engine_plan.h"

namespace zero::detail {

GroupId update_group(const EnginePlan& plan) {
  if (plan.policy.updates != Holding::slice) return GroupId::shard;
  return GroupId::slices;
}

std::optional<GroupSplit> split_of(const EnginePlan& plan, GroupId group, int rank) {
  const RankGrid& grid = plan.grid;
  const StatePolicy& policy = plan.policy;
  const auto inside = [&](int ranks) { return GroupSplit{rank / ranks, rank % ranks, ranks, 0}; };
  const auto between = [&](int ranks) {
    return GroupSplit{grid.group(rank) * ranks + rank % ranks, rank / ranks, 0, ranks};
  };
  const int sums = policy.first_sum_ranks(), gathers = plan.wire.gather_hop;
  const bool gathers_apart = gathers > 0 && gathers != sums;
  const int sharing = policy.second_copy_ranks;
  switch (group) {
    case GroupId::shard:
      if (grid.replicas() > 1) return inside(grid.shard_ranks);
      break;
    case GroupId::replicas:
      if (grid.replicas() > 1)
        return GroupSplit{grid.in_group(rank), grid.group(rank), 0, grid.shard_ranks};
      break;
    case GroupId::slices:
      if (grid.replicas() > 1 && policy.updates == Holding::slice && !plan.matrices.empty())
        return GroupSplit{0, grid.slice_of(rank)};
      break;
    case GroupId::second_copy:
      if (sharing > 0) return GroupSplit{rank / sharing, rank % sharing};
      break;
    case GroupId::reduce_inside:
      if (sums > 0) return inside(sums);
      break;
    case GroupId::reduce_between:
      if (sums > 0) return between(sums);
      break;
    case GroupId::gather_inside:
      if (gathers_apart) return inside(gathers);
      break;
    case GroupId::gather_between:
      if (gathers_apart) return between(gathers);
      break;
    default:
      break;
  }
  return {};
}

}  // namespace zero::detail
