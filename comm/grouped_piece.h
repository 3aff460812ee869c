// Sum over reduce groups, for a piece of elements that stays in the first-level cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/reduce_groups.h"

namespace zero::comm {

template <std::int64_t size>
class GroupedPiece {
 public:
  // Returns the sum of n elements, stored in this object. Groups at ending(source) levels end with
  // the source; the end of the last source is implied. add_up(first, last, to) sums single sources,
  // and round(sum) rounds a group's sum before the addition to the outer sum.
  template <class Ending, class AddUp, class Round>
  float* sum(int sources, std::int64_t n, const Ending& ending, const AddUp& add_up,
             const Round& round) {
    bool begun[ReduceGroups::most_levels + 1] = {};
    int outermost = 0;
    for (int first = 0, last = 0; first < sources; first = last) {
      ++last;
      while (last < sources && ending(last - 1) == 0) ++last;
      add_up(first, last, sums_[0]);
      const int ended = last < sources ? ending(last - 1) : outermost;
      for (int level = 0; level < ended; ++level) {
        const float* group = sums_[level];
        float* outer = sums_[level + 1];
        round(sums_[level]);
        for (std::int64_t i = 0; i < n; ++i)
          outer[i] = begun[level + 1] ? outer[i] + group[i] : group[i];
        begun[level] = false;
        begun[level + 1] = true;
      }
      outermost = std::max(outermost, ended);
    }
    return sums_[outermost];
  }

 private:
  alignas(
      64) float sums_[ReduceGroups::most_levels + 1][size];  // by level, of groups not ended yet
};

}  // namespace zero::comm
