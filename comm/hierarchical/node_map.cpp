#include "comm/hierarchical/node_map.h"

#include <algorithm>
#include <map>

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

SumPlan::SumPlan(const NodeMap& map, int group) : reduce_group(group) {
  items.resize(map.nodes());
  const auto add = [&](int node, Item item) {
    auto& there = items[node];
    sources.push_back({node, static_cast<int>(there.size())});
    there.push_back(std::move(item));
  };
  for (int first = 0; first < map.size(); first += group) {
    Item ranks;
    for (int r = first; r < std::min(first + group, map.size()); ++r) ranks.push_back(r);
    const bool whole = std::all_of(ranks.begin(), ranks.end(),
                                   [&](int r) { return map.node(r) == map.node(first); });
    if (whole)
      add(map.node(first), ranks);
    else
      for (const int r : ranks) add(map.node(r), {r});
    ends.push_back(static_cast<int>(sources.size()));
  }
}

}  // namespace zero::comm
