// The pieces in which the optimizer step goes over a rank's shard, in forward order, and what of it
// rests in a file: one segment's updated elements, whole where their state rests in memory, cut
// where it rests in a file. The same on every rank; needs no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/config.h"
#include "zero/plan/state_policy.h"

namespace zero::detail {

// Arrays of a chunk start at multiples of 4096 bytes in a segment's file, in every dtype.
inline constexpr std::int64_t chunk_alignment_elements = 2048;

struct Chunk : SegmentId {
  std::int64_t begin = 0;  // elements from the first that this rank updates in the segment
  std::int64_t count = 0;
  bool last_of_unit = false;  // then the whole flat unit has been updated
  bool state_in_file = false;
  bool on_host = false;  // of a GPU rank: it is updated in host memory, where its state rests too
                         // unless in the file
  // Buffer in which it is updated where part of it rests in the file, or from which its parameters
  // return to a GPU where they rest.
  int slot = -1;
  bool ahead = false;  // the first in its slot: read while the last micro step runs
};

// What rests in a file, or in host memory beside a GPU, and the buffers that it passes through.
struct OffloadPlan {
  // Elements of a segment from the first that this rank updates whose states rest in memory, by
  // flat unit and segment. Empty: all.
  std::vector<std::vector<std::int64_t>> resident;
  // Of the chunks whose states do; else they rest in the arena, and are copied where on_host.
  bool gradients = false;
  bool on_host = false;  // some chunks are, or some parameters rest there or in a file beside a GPU
  bool in_file = false;  // some state or parameters rest in a file
  int state_slots = 0;
  bool pipeline_read = true, pipeline_write = true;
  // The buffer from which a flat unit whose parameter shard rests elsewhere is gathered, or -1; and
  // whether that is the file.
  std::vector<int> shard_slot_of;
  std::vector<char> shard_in_file;
  int shard_slots = 0;

  // Reduced gradients go on from where they land.
  bool spills() const { return gradients || on_host; }
  int shard_slot(int flat_unit) const {
    return shard_slot_of.empty() ? -1 : shard_slot_of[flat_unit];
  }
  bool fetches(int flat_unit) const {
    return !shard_in_file.empty() && shard_in_file[flat_unit] != 0;
  }
  // Part of the chunk is read from the file and written back.
  bool passes_file(const Chunk& chunk) const {
    return chunk.state_in_file || fetches(chunk.flat_unit);
  }
  // Its new parameters go to a GPU, where they rest.
  bool uploads(const Chunk& chunk) const {
    return chunk.on_host && shard_slot(chunk.flat_unit) < 0;
  }
  // Its gradient is read from the file.
  bool recalls(const Chunk& chunk) const { return gradients && chunk.state_in_file; }
};

struct Chunking {
  std::vector<Chunk> chunks;
  OffloadPlan offload;
};

Chunking make_chunking(const Layout& layout, const StatePolicy& policy, const Config& config);

}  // namespace zero::detail
