// Where those of a rank's elements rest that have no place in the engine's arena. StateStore asks
// it for them; positions are elements from the start of the segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zero/state/state_array.h"

namespace zero::detail {

class OuterTier {
 public:
  virtual ~OuterTier() = default;

  // Elements of the array: [begin of the slice, this) rest in the arena, the others here.
  virtual std::int64_t first_outside(const ArrayId& array) const = 0;
  // As StateStore::visit, of elements that rest here.
  virtual void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
                     const PartVisitor& visitor) = 0;
  // The array's first element where the chunk is updated; null where that is its place in the
  // arena.
  virtual std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const = 0;
  // Elements from `begin` on, which rest in the arena, have been written.
  virtual void note_written(const ArrayId&, std::int64_t /*begin*/, std::span<const std::byte>) {}
};

}  // namespace zero::detail
