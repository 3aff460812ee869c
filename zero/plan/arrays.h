// The memory of a rank's parameters and gradients: which arrays each segment has, their sizes, and
// the slots that the arrays of several units share. The strategy decides here which arrays to keep.
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
  int slot = -1;  // -1: separate memory
};

// Arrays that are requested together. Those in a slot follow each other, for each flat unit from
// the start of the slot.
struct PlannedArrays {
  MemoryCategory category{};
  int slots = 0;
  std::vector<PlannedArray> arrays = {};  // flat unit by flat unit
};

// In the order of the arena. The first entry has the source buffers for gathers of offloaded
// shards, so that the buffers start on pages.
std::vector<PlannedArrays> planned_arrays(const EnginePlan& plan);

}  // namespace zero::detail
