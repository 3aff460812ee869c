// The memory of a rank's parameters and gradients: which arrays each segment has, their sizes, and
// the slots that the arrays of several units share. A strategy decides here what it keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/base/ledger.h"
#include "zero/plan/route.h"

namespace zero::detail {

struct EnginePlan;

struct PlannedArray {
  SegmentId id;
  Role role{};
  std::int64_t bytes = 0;
  int slot = -1;  // -1: memory of its own
};

// Arrays that are requested together. Those in one slot follow each other, for each flat unit from
// the start of the slot.
struct PlannedArrays {
  MemoryCategory category{};
  int slots = 0;
  std::vector<PlannedArray> arrays = {};  // of one flat unit after the other
};

// In the order of the arena. The first entry has the source buffers for gathers of offloaded
// shards, so that they start on pages.
std::vector<PlannedArrays> planned_arrays(const EnginePlan& plan);

}  // namespace zero::detail
