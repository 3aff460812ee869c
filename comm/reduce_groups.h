// Nested groups of consecutive ranks that are summed first: the ranks of a node, for example, then
// those of a rack. For hosts and GPUs.
#pragma once

#include <string>

namespace zero::comm {

struct ReduceGroups {
  static constexpr int most_levels = 3;
  // Ranks per group, each size a multiple of the previous one; 0 ends the list.
  int sizes[most_levels] = {};

  constexpr ReduceGroups() = default;
  // A single level of groups; 0: all ranks form one group.
  constexpr ReduceGroups(int size) : sizes{size} {}

  bool operator==(const ReduceGroups&) const = default;
  constexpr bool nested() const {
    for (int level = 0; level < most_levels; ++level) {
      const int size = sizes[level], inner = level == 0 ? 1 : sizes[level - 1];
      if (size < 0 || (size > 0 && (inner == 0 || size % inner != 0))) return false;
    }
    return true;
  }
  // Returns the groups without those that contain all ranks.
  constexpr ReduceGroups within(int ranks) const {
    ReduceGroups result;
    for (int level = 0; level < most_levels && sizes[level] < ranks; ++level)
      result.sizes[level] = sizes[level];
    return result;
  }
  // Returns the groups counted in blocks of `ranks` ranks, without groups of a single block.
  constexpr ReduceGroups over(int ranks) const {
    ReduceGroups result;
    int level = 0;
    for (const int size : sizes)
      if (size > ranks) result.sizes[level++] = size / ranks;
    return result;
  }
  // Returns the number of ranks of a group at a level, from 1 for the innermost groups up to all
  // `ranks`; at level 0 groups are single ranks.
  constexpr int ranks_at(int level, int ranks) const {
    if (level == 0) return 1;
    return sizes[level - 1] > 0 ? sizes[level - 1] : ranks;
  }
  constexpr bool has(int size) const {
    return size == sizes[0] || size == sizes[1] || size == sizes[2];
  }
  // Returns the number of levels with a group that ends with the rank.
  constexpr int ending_with(int rank) const {
    int level = 0;
    while (level < most_levels && sizes[level] > 0 && (rank + 1) % sizes[level] == 0) ++level;
    return level;
  }
};

// "4, 8".
inline std::string text_of(const ReduceGroups& groups) {
  std::string text;
  for (const int size : groups.sizes)
    if (size > 0) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return text;
}

// Returns the sum of value(rank), whose type has operator+, over the ranks [begin, end): groups by
// groups, each rounded by round().
template <int level = ReduceGroups::most_levels, class Value, class Round>
constexpr auto grouped_sum(const ReduceGroups& groups, int begin, int end, const Value& value,
                           const Round& round) {
  using Sum = decltype(value(begin));
  const int size = groups.ranks_at(level, end - begin);
  Sum total{};
  for (int first = begin; first < end; first += size) {
    Sum part{};
    if constexpr (level > 0) {
      const int last = first + size < end ? first + size : end;
      part = round(grouped_sum<level - 1>(groups, first, last, value, round));
    } else {
      part = value(first);
    }
    total = first == begin ? part : total + part;
  }
  return total;
}

}  // namespace zero::comm
