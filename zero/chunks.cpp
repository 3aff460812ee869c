#include "zero/chunks.h"

#include "zero/state.h"

namespace zero::detail {

std::vector<Chunk> make_chunks(const Layout& layout, const StatePolicy& policy) {
  std::vector<Chunk> chunks;
  for (std::size_t f = 0; f < layout.flat_units.size(); ++f) {
    const std::size_t before = chunks.size();
    for (std::size_t s = 0; s < layout.flat_units[f].segments.size(); ++s) {
      const Segment& segment = layout.flat_units[f].segments[s];
      const std::int64_t count = policy.optimizer_sharded ? segment.shard : segment.length;
      if (segment.trainable && count > 0)
        chunks.push_back({static_cast<int>(f), static_cast<int>(s), 0, count, false});
    }
    if (chunks.size() > before) chunks.back().last_of_unit = true;
  }
  return chunks;
}

}  // namespace zero::detail
