// Lists what a rank keeps outside of the engine's arena, one part for each array of a chunk, and
// says which parts each instruction of a plan moves, from where to where. OffloadTier takes memory
// for what is listed, moves and shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "zero/plan/step_plan.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// One array of one chunk, or what a rank holds of a parameter's segment.
struct OffloadPart {
  static constexpr std::int64_t nowhere = -1;

  ArrayId array;
  Range range;  // elements of the segment
  DType dtype = DType::fp32;
  Home home = Home::device;            // device: it is kept in the arena
  int slot = -1;                       // of its chunk
  std::int64_t slot_offset = nowhere;  // bytes; nowhere: it has no place in the slot
  std::int64_t staging_offset = 0;     // bytes, of a gradient on its way from a GPU to the file
  int extent = -1;                     // in the file
  std::byte* memory = nullptr;         // where it is kept in host memory

  std::int64_t bytes() const { return range.count() * size_of(dtype); }
  bool passes_slot() const { return slot_offset != nowhere; }
  // Has a home out of the arena to which its slot is written back.
  bool returns() const { return passes_slot() && home != Home::device; }
};

// What the part takes of a slot, or of staging beside a GPU.
std::int64_t slot_bytes_of(const OffloadPlan& offload, const OffloadPart& part);
// Of a chunk, in the order in which they lie in its slot. Where a parameter is its own master, and
// a GPU keeps it, the part of kind master is a copy in host memory.
std::vector<OffloadPart> parts_of_chunk(const PlanInputs& inputs, const ModelState& state,
                                        const Chunk& chunk);

// Where a part may lie.
enum class Location : std::uint8_t {
  home,    // the file, or host memory beside a GPU
  slot,    // its chunk's, in which it is updated: in host memory, or on the GPU that updates it
  buffer,  // on a CPU rank, from which its parameter is gathered; beside a GPU, in host memory
           // between the file and the GPU
  device,  // the GPU's arena
};

// From where to where an instruction moves parts. Those that are kept in host memory skip the
// buffer: if a move says so, they are taken from, or put, where they are kept.
struct OffloadMove {
  Location from, to;
};
OffloadMove move_of(Op op);
bool moves(Op op, const Chunk& chunk, const SegmentBuffers& own, const OffloadPart& part);

}  // namespace zero::detail
