// Keeps those of a rank's elements that have no place in the engine's arena. StateStore asks it for
// them. Positions are elements counted from the start of the segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zero/plan/step_plan.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

class OuterTier {
 public:
  // Both outlive it.
  OuterTier(const PlanInputs& inputs, const ModelState& state) : inputs_(inputs), state_(state) {}
  OuterTier(const OuterTier&) = delete;
  virtual ~OuterTier() = default;

  // Of the array's elements, those below this position are kept in the arena, the others here.
  std::int64_t first_outside(const ArrayId& array) const {
    const SegmentBuffers& own = state_.segment(array);
    if (own.is_parameter(array.kind))
      return inputs_.offload.shard_slot(array.flat_unit) < 0 ? own.held.end : own.held.begin;
    const bool stays = array.kind == ArrayKind::gradient && !inputs_.offload.gradients;
    return stays ? own.updated.end : own.updated.begin + own.resident;
  }
  // As StateStore::visit, of elements that are kept here.
  virtual void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) = 0;
  // Where the array's first element lies while the chunk is updated; null where it lies in the
  // arena.
  virtual std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const = 0;
  // Is called after elements that are kept in the arena have been written, from `begin` on.
  virtual void note_written(const ArrayId&, std::int64_t /*begin*/, std::span<const std::byte>) {}

 protected:
  const Layout& layout() const { return *inputs_.layout; }
  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  // Calls each(number) for the chunks of a flat unit.
  template <class Each>
  void for_chunks_of(int flat_unit, const Each& each) const {
    for (int c = 0; c < std::ssize(inputs_.chunks); ++c)
      if (chunk(c).flat_unit == flat_unit) each(c);
  }

  const PlanInputs& inputs_;
  const ModelState& state_;
};

}  // namespace zero::detail
