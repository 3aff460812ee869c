// Assignment of gathered flat units, and of gradients, to buffers (slots). Units of similar size
// share a few slots in turn, so that slot bytes do not grow with depth (YaFSDP); a unit and its
// inner units are gathered together, and share none. Held, persistent and odd-sized units share no
// slot.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/plan/layout.h"

namespace zero::detail {

// The slot of each flat unit; -1 for a unit that needs none, such as the gradient slot of a unit
// without trainable parameters.
struct SlotAssignment {
  std::vector<int> slot_of;
  int slots = 0;
};

struct SlotPolicy {
  int per_class = 2;  // slots that units of equal size share; 0: no unit shares a slot
  bool trainable_only = false;
  // In elements. If set by the config, these override per_class.
  std::optional<std::int64_t> prefetch_bucket = {}, max_live = {};
};

SlotAssignment assign_slots(const Layout& layout, const SlotPolicy& policy);

}  // namespace zero::detail
