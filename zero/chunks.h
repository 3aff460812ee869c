// The pieces in which the optimizer step goes over a rank's shard, in forward order: one segment's
// updated elements, whole where their state rests in memory, cut where it rests in a file. The same
// on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/layout.h"

namespace zero::detail {

struct StatePolicy;

struct Chunk {
  int flat_unit = 0;
  int segment = 0;
  std::int64_t begin = 0;  // elements from the first that this rank updates in the segment
  std::int64_t count = 0;
  bool last_of_unit = false;  // then the whole flat unit has been updated
};

std::vector<Chunk> make_chunks(const Layout& layout, const StatePolicy& policy);

}  // namespace zero::detail
