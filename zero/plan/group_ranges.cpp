#include "zero/plan/group_ranges.h"

#include <algorithm>
#include <utility>

namespace zero::detail {

// Padding belongs to the preceding parameter: zeros stay zeros under every rule.
GroupRanges::GroupRanges(const Segment& segment, const Range& updated, const UpdateGroups& groups)
    : state_counts(groups.state_names().size()) {
  if (!segment.trainable) return;
  GroupRange run{{updated.begin, updated.begin}, -1};
  for (std::size_t p = 0; p < segment.params.size(); ++p) {
    const int group = groups.group_of_param()[segment.params[p].param];
    const bool last = p + 1 == segment.params.size();
    const Range with_padding = {segment.params[p].offset,
                                last ? segment.length : segment.params[p + 1].offset};
    const Range part = intersection(with_padding, {run.end, updated.end});
    if (part.empty()) continue;
    if (group != run.group && !run.empty()) add(run, groups);
    if (group != run.group) run = {{run.end, run.end}, group};
    run.end = part.end;
  }
  if (!run.empty()) add(run, groups);
}

void GroupRanges::add(GroupRange run, const UpdateGroups& groups) {
  run.state_begin.assign(state_counts.size(), -1);
  for (const int state : groups.group(run.group).states) {
    run.state_begin[state] = state_counts[state];
    state_counts[state] += run.count();
  }
  runs.push_back(std::move(run));
}

std::int64_t GroupRanges::state_position(int state, std::int64_t element) const {
  for (const GroupRange& run : runs)
    if (element < run.end && run.state_begin[state] >= 0)
      return run.state_begin[state] + std::max<std::int64_t>(0, element - run.begin);
  return state_counts[state];
}

}  // namespace zero::detail
