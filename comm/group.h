// Members of a group, by rank in the world, and the split of a group into smaller groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace zero::comm {

struct Group {
  std::vector<int> world_ranks;  // by rank in the group
  int rank = 0;                  // this process's

  int size() const { return static_cast<int>(world_ranks.size()); }
  int world_rank() const { return world_ranks[rank]; }
};

// Result of split() for one rank of a group.
struct Subgroup {
  std::vector<int> parent_ranks;  // by rank in the new group
  Group group;
  int leader() const { return parent_ranks.front(); }
};

// colors_and_keys contains {color, key} of every rank of `parent`.
Subgroup subgroup_of(const Group& parent, std::span<const std::int64_t> colors_and_keys);

}  // namespace zero::comm
