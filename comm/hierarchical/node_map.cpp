#include "comm/hierarchical/node_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace zero::comm {

NodeMap::NodeMap(const Group& group, std::span<const int> node_of) {
  std::map<int, int> number_of;
  for (const int world_rank : group.world_ranks) {
    const int name = node_of[world_rank];
    const int number =
        number_of.try_emplace(name, static_cast<int>(number_of.size())).first->second;
    if (number == nodes()) members_.emplace_back();
    auto& members = members_[number];
    local_.push_back(static_cast<int>(members.size()));
    members.push_back(size());
    node_of_.push_back(number);
  }
}

int NodeMap::partner(int rank, int node) const {
  const auto& there = members(node);
  return there[static_cast<std::size_t>(local(rank)) % there.size()];
}

std::vector<int> NodeMap::clients(int rank) const {
  std::vector<int> result;
  for (int other = 0; other < size(); ++other)
    if (node(other) != node(rank) && partner(other, node(rank)) == rank) result.push_back(other);
  return result;
}

SumPlan::SumPlan(const NodeMap& map, const ReduceGroups& nested) : groups(nested) {
  items.resize(map.nodes());
  add(map, 0, map.size(), ReduceGroups::most_levels);
}

// The ranks [first, last), which are a group of groups of that level; 0: of ranks.
void SumPlan::add(const NodeMap& map, int first, int last, int level) {
  Item ranks(last - first);
  std::iota(ranks.begin(), ranks.end(), first);
  const int node = map.node(first);
  if (std::ranges::all_of(ranks, [&](int rank) { return map.node(rank) == node; })) {
    auto& there = items[node];
    sources.push_back({node, static_cast<int>(there.size())});
    ending.push_back(static_cast<std::uint8_t>(groups.ending_with(last - 1)));
    there.push_back(std::move(ranks));
    return;
  }
  const int size = groups.ranks_at(level, last - first);
  for (int inner = first; inner < last; inner += size)
    add(map, inner, std::min(inner + size, last), level - 1);
}

}  // namespace zero::comm
