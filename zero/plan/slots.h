// Which buffer (slot) a gathered flat unit lies in, and which one takes its gradient. Units of
// similar size take turns in a few slots, so that slot bytes do not grow with depth (YaFSDP); a
// unit and those that lie within it are gathered together, and share none. Held, persistent and
// odd-sized units have a slot of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/plan/layout.h"

namespace zero::detail {

// The slot of each flat unit; -1 for a unit that needs none, as one without trainable parameters
// needs none for gradients.
struct SlotAssignment {
  std::vector<int> slot_of;
  int slots = 0;
};

struct SlotPolicy {
  int per_class = 2;  // slots that units of one size share; 0: every unit has its own
  bool trainable_only = false;
  // In elements. Where the config sets them, they replace per_class.
  std::optional<std::int64_t> prefetch_bucket = {}, max_live = {};
};

SlotAssignment assign_slots(const Layout& layout, const SlotPolicy& policy);

}  // namespace zero::detail
