// Lists the state that a rank keeps outside of the engine's arena, array by array of each chunk,
// and the arrays that each instruction of a plan moves, with source and destination. OffloadTier
// takes the memory, and moves and accesses the arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "zero/plan/step_plan.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// An array of a chunk, or a rank's shard of a segment's parameters.
struct OffloadArray {
  static constexpr std::int64_t nowhere = -1;

  ArrayId id;
  Range range;  // elements of the segment
  DType dtype = DType::fp32;
  Tier home = Tier::memory;            // memory: kept in the arena
  int slot = -1;                       // the chunk's
  std::int64_t slot_offset = nowhere;  // bytes; nowhere: not in the slot
  std::int64_t staging_offset = 0;     // bytes, for a gradient copied from a GPU to the file
  int number_in_file = -1;             // of the block store; -1: not in the file
  std::byte* memory = nullptr;         // the address if kept in host memory

  std::int64_t bytes() const { return range.count() * size_of(dtype); }
  bool passes_slot() const { return slot_offset != nowhere; }
  // Whether the slot is written back to a home outside the arena.
  bool returns() const { return passes_slot() && home != Tier::memory; }
};

// Bytes of the array in a slot, or in the staging of a GPU rank.
std::int64_t slot_bytes_of(const OffloadPlan& offload, const OffloadArray& array);
// Lists the arrays of a chunk in the order of the slot. If a GPU keeps a parameter that serves as
// master weight, the array of kind master is a copy in host memory.
std::vector<OffloadArray> arrays_of_chunk(const PlanInputs& inputs, const ModelState& state,
                                          const Chunk& chunk);

// Possible places of an array.
enum class Location : std::uint8_t {
  home,    // the file, or host memory of a GPU rank
  slot,    // the chunk's, for the update: in host memory, or on the GPU that updates it
  buffer,  // CPU ranks: the source of the parameter's gather; GPU ranks: in host memory, on the way
           // between the file and the GPU
  device,  // the GPU's arena
};

// Source and destination of an instruction's moves. Arrays that are kept in host memory skip the
// buffer: a move from or to the buffer uses the home instead.
struct OffloadMove {
  Location from, to;
};
OffloadMove move_of(Op op);
bool moves(Op op, const Chunk& chunk, const SegmentBuffers& own, const OffloadArray& array);

}  // namespace zero::detail
