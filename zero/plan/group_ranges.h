// The elements of a segment that a rank updates, by optimizer group: a state that only some groups
// have is kept without gaps.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/plan/layout.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

// Consecutive elements of the same optimizer group.
struct GroupRange : Range {
  int group = 0;
  // Position of `begin` in the array of each state; -1: the group has no such state.
  std::vector<std::int64_t> state_begin = {};
};

struct GroupRanges {
  GroupRanges() = default;
  // `updated`: the range of the segment that the rank updates.
  GroupRanges(const Segment& segment, const Range& updated, const UpdateGroups& groups);

  std::vector<GroupRange> runs;
  std::vector<std::int64_t> state_counts;  // elements with each state

  // Returns the position of a segment's element in the array of a state; for an element without
  // that state, the position of the next element with the state.
  std::int64_t state_position(int state, std::int64_t element) const;

 private:
  void add(GroupRange run, const UpdateGroups& groups);
};

}  // namespace zero::detail
