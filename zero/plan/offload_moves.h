// The arrays that each instruction of a plan moves between offloaded state and the memory of
// computation, with source and destination. OffloadTier moves them, and the planner times the
// bytes.
#pragma once

#include "zero/plan/array_row.h"
#include "zero/plan/chunks.h"
#include "zero/plan/step_plan.h"

namespace zero::detail {

struct EnginePlan;

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
// Whether the instruction on a chunk moves this array of the chunk.
bool moves(Op op, const Chunk& chunk, const SegmentTypes& types, const ArrayRow& row);
// Calls each(number) for the chunks whose arrays an instruction moves: its own, or those of its
// flat unit.
template <class Each>
void for_chunks(const std::vector<Chunk>& chunks, Op op, int target, const Each& each) {
  if (target_of(op) == Target::chunk) return each(target);
  for (int c = 0; c < std::ssize(chunks); ++c)
    if (chunks[c].flat_unit == target) each(c);
}
// Bytes that an instruction moves.
std::int64_t moved_bytes(const EnginePlan& plan, Op op, int target);

}  // namespace zero::detail
