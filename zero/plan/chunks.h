// Chunks: the ranges of a rank's elements that the optimizer updates in turn, in forward order, and
// their offloaded state. A segment with state in memory is a single chunk; offloaded state is
// divided into chunks that pass through a few buffers. Every rank makes the same chunks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "zero/config.h"
#include "zero/plan/state_policy.h"
#include "zero/plan/update_groups.h"

namespace zero::detail {

// Chunk sizes are multiples of this, so that in every dtype the arrays of a chunk in a file are
// whole pages of 4096 bytes.
inline constexpr std::int64_t chunk_alignment_elements = 2048;

struct Chunk : SegmentId {
  std::int64_t begin = 0;  // counted from the first element of the segment that this rank updates
  std::int64_t count = 0;
  bool last_of_unit = false;  // the update completes the flat unit
  bool state_in_file = false;
  // On a GPU rank: updated in host memory, which also keeps the state unless the file does.
  bool on_host = false;
  // On a GPU rank: the state is kept in host memory and passes through a slot on the GPU for the
  // update.
  bool streamed = false;
  // The buffer for the update if some arrays of the chunk are stored elsewhere, or the source of
  // the upload of parameters to a GPU; -1: none.
  int slot = -1;
  bool ahead = false;  // first in the slot: read during the last micro step

  // The chunk's elements of the segment, of which the rank updates that range.
  Range range_in(const Range& updated) const {
    return {updated.begin + begin, updated.begin + begin + count};
  }
};

// State that is offloaded to a file, or on GPU ranks to host memory, and the buffers for it.
struct OffloadPlan {
  // Number of elements, of those that this rank updates, with states in memory: the first of each
  // segment. Empty: all.
  BySegment<std::int64_t> resident;
  // Gradients are offloaded with the states of the chunk. Otherwise gradients stay in the arena,
  // and are copied for chunks that are updated on the host.
  bool gradients = false;
  bool updates_on_host = false;     // some chunks, by the host of a GPU rank
  bool streams = false;             // some chunks are streamed
  bool parameters_on_host = false;  // some leave the GPU
  bool in_file = false;             // some state or parameters are in a file
  std::int64_t kept_bytes = 0;      // of the first unit's states, in GPU memory
  // Slots of chunks: the first in host memory, or those of CPU ranks; the rest on the GPU.
  int host_slots = 0, state_slots = 0;
  bool pipeline_read = true, pipeline_write = true;
  // Per flat unit, if parameters are offloaded: the source buffer of the gather, or -1 if the shard
  // stays; and whether the shard is in the file.
  std::vector<int> shard_slot_of;
  std::vector<char> shard_in_file;
  int shard_slots = 0;

  int gpu_slots() const { return state_slots - host_slots; }
  // Part of a GPU rank's state is kept in, or passes through, host memory.
  bool to_host() const { return updates_on_host || streams || parameters_on_host; }
  bool offloads() const { return in_file || to_host(); }
  // Reduced gradients are moved away from the destination of the reduction.
  bool spills() const { return gradients || updates_on_host; }
  // Elements of a segment, of those that this rank updates, with states in memory.
  std::int64_t resident_of(const SegmentId& id, const Range& updated) const {
    return resident.empty() ? updated.count() : resident[id];
  }
  int shard_slot(int flat_unit) const {
    return shard_slot_of.empty() ? -1 : shard_slot_of[flat_unit];
  }
  bool fetches(int flat_unit) const {
    return !shard_in_file.empty() && shard_in_file[flat_unit] != 0;
  }
  // Part of the chunk is copied to the slot, and back to its home.
  bool passes_slot(const Chunk& chunk) const {
    return chunk.state_in_file || chunk.streamed || fetches(chunk.flat_unit);
  }
  // Parameters pass through the slot too.
  bool moves_parameters(const Chunk& chunk) const {
    return fetches(chunk.flat_unit) || (chunk.streamed && shard_slot(chunk.flat_unit) >= 0);
  }
  // The new parameters are copied to the GPU, which keeps the shard.
  bool uploads(const Chunk& chunk) const {
    return chunk.on_host && shard_slot(chunk.flat_unit) < 0;
  }
  // The gradient is read from the file.
  bool recalls(const Chunk& chunk) const { return gradients && chunk.state_in_file; }
};

using Chunking = std::pair<std::vector<Chunk>, OffloadPlan>;
// `needed_first`: the flat units of the first unit in forward order.
Chunking make_chunking(const Layout& layout, const StatePolicy& policy, const UpdateGroups& updates,
                       const Config& config, const std::vector<int>& needed_first);

}  // namespace zero::detail
