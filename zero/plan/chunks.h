// Chunks: the ranges of a rank's elements that the optimizer updates one after another, in forward
// order, and what of their state is offloaded. A segment whose state stays in memory is one chunk;
// offloaded state is cut into chunks that pass through a few buffers. Every rank makes the same
// chunks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "zero/config.h"
#include "zero/plan/state_policy.h"

namespace zero::detail {

// Chunks are multiples of it, so that in every dtype their arrays in a file are whole pages of 4096
// bytes.
inline constexpr std::int64_t chunk_alignment_elements = 2048;

struct Chunk : SegmentId {
  std::int64_t begin = 0;  // counted from the first element of the segment that this rank updates
  std::int64_t count = 0;
  bool last_of_unit = false;  // then the whole flat unit has been updated
  bool state_in_file = false;
  // On a GPU rank: it is updated in host memory, where its state is kept unless that is in the
  // file.
  bool on_host = false;
  // On a GPU rank: its state is kept in host memory, and passes through a slot of the GPU, which
  // updates it.
  bool streamed = false;
  // The buffer in which it is updated where part of it is kept elsewhere, or from which its
  // parameters are uploaded to a GPU; -1 where it needs none.
  int slot = -1;
  bool ahead = false;  // the first in its slot: it is read while the last micro step runs
};

// What is offloaded to a file, or to host memory beside a GPU, and the buffers that it passes
// through.
struct OffloadPlan {
  // How many of the elements that this rank updates keep their states in memory: the first ones of
  // each segment. Empty: all of them.
  BySegment<std::int64_t> resident;
  // Gradients are offloaded with the states of their chunk. Otherwise they are kept in the arena,
  // and are copied for chunks that are updated on the host.
  bool gradients = false;
  bool updates_on_host = false;     // some chunks, beside a GPU
  bool streams = false;             // some chunks are streamed
  bool parameters_on_host = false;  // some leave a GPU
  bool in_file = false;             // some state or parameters are kept in a file
  int state_slots = 0;
  bool pipeline_read = true, pipeline_write = true;
  // By flat unit, where parameters are offloaded: the buffer from which it is gathered, or -1 where
  // its shard stays; and whether the file has it.
  std::vector<int> shard_slot_of;
  std::vector<char> shard_in_file;
  int shard_slots = 0;

  // Part of what a GPU rank has is kept in host memory, or passes through it.
  bool beside_gpu() const { return updates_on_host || streams || parameters_on_host; }
  bool offloads() const { return in_file || beside_gpu(); }
  // Reduced gradients do not stay where they are reduced to.
  bool spills() const { return gradients || updates_on_host; }
  int shard_slot(int flat_unit) const {
    return shard_slot_of.empty() ? -1 : shard_slot_of[flat_unit];
  }
  bool fetches(int flat_unit) const {
    return !shard_in_file.empty() && shard_in_file[flat_unit] != 0;
  }
  // Part of the chunk is brought to its slot, and back to where it is kept.
  bool passes_slot(const Chunk& chunk) const {
    return chunk.state_in_file || chunk.streamed || fetches(chunk.flat_unit);
  }
  // Its parameters too.
  bool moves_parameters(const Chunk& chunk) const {
    return fetches(chunk.flat_unit) || (chunk.streamed && shard_slot(chunk.flat_unit) >= 0);
  }
  // Its new parameters are copied to the GPU that keeps them.
  bool uploads(const Chunk& chunk) const {
    return chunk.on_host && shard_slot(chunk.flat_unit) < 0;
  }
  // Its gradient is read from the file.
  bool recalls(const Chunk& chunk) const { return gradients && chunk.state_in_file; }
};

using Chunking = std::pair<std::vector<Chunk>, OffloadPlan>;
Chunking make_chunking(const Layout& layout, const StatePolicy& policy, const Config& config);

}  // namespace zero::detail
