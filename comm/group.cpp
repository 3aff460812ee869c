#include "comm/group.h"

#include <algorithm>
#include <cstddef>

namespace zero::comm {

Subgroup subgroup_of(const Group& parent, std::span<const std::int64_t> colors_and_keys) {
  const auto color = [&](int r) { return colors_and_keys[static_cast<std::size_t>(r) * 2]; };
  const auto key = [&](int r) { return colors_and_keys[static_cast<std::size_t>(r) * 2 + 1]; };
  Subgroup result;
  for (int r = 0; r < parent.size(); ++r)
    if (color(r) == color(parent.rank)) result.parent_ranks.push_back(r);
  std::stable_sort(result.parent_ranks.begin(), result.parent_ranks.end(),
                   [&](int a, int b) { return key(a) < key(b); });
  for (const int r : result.parent_ranks) {
    if (r == parent.rank) result.group.rank = result.group.size();
    result.group.world_ranks.push_back(parent.world_ranks[r]);
  }
  return result;
}

}  // namespace zero::comm
