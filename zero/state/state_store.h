// The only access to the arrays of this rank's elements (parameter, gradient, master weights,
// optimizer states), in any home. Code that saves, loads, reads, fills or updates arrays gets
// pieces in host memory here, and does not depend on tiers or devices. One thread. Positions are
// elements counted from the start of the segment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "optim/device_kernels.h"
#include "zero/plan/chunks.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/change_bits.h"
#include "zero/state/offload_tier.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

class StateStore {
 public:
  // All must outlive this object.
  StateStore(RuntimeCore& runtime, const EnginePlan& plan, ModelState& state, OffloadTier* tier,
             ChangeBits& changes)
      : runtime_(runtime), plan_(plan), state_(state), tier_(tier), changes_(changes) {}

  // `what` is "value", "grad", "master" or the name of an optimizer state. Returns nothing if the
  // segment has no such array. Throws UsageError for an unknown name.
  std::optional<ArrayId> find(const SegmentId& id, std::string_view what) const;
  DType dtype_of(const ArrayId& array) const { return state_.segment(array).of(array.kind); }
  // Whether the array has elements of this parameter: a state may exist for only some parameters of
  // the segment.
  bool holds(const ArrayId& array, int param) const {
    return array.kind != ArrayKind::state || plan_.updates.has_state(param, array.number);
  }

  // Whether another thread may read while a step runs, except for arrays being updated.
  bool readable_during_steps() const { return runtime_.device().is_host() && tier_ == nullptr; }

  // Calls the visitor for elements [begin, end) of this rank, piece by piece in order. Only between
  // steps, or between the reductions and the update of a step. A piece is valid until the visitor
  // returns, and must not be changed.
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end,
             const PartVisitor& visitor);
  void read(const ArrayId& array, std::int64_t begin, std::int64_t end, std::byte* to);
  // Reads elements as fp32.
  std::vector<float> read_floats(const ArrayId& array, const Range& range);
  // Converts elements of that dtype to the array's.
  void write(const ArrayId& array, std::int64_t begin, DType dtype,
             std::span<const std::byte> from);

  // This rank's elements below this position are kept in the arena.
  std::int64_t end_in_memory(const ArrayId& array) const;

  // Returns the address of element `at`, which must be kept in the arena.
  std::byte* address(const ArrayId& array, std::int64_t at) const;

  // Returns the arrays for updating some elements of the chunk with this number, by a rule that has
  // these states. Valid during the update of the chunk.
  optim::DeviceUpdate update_of(int chunk, const Range& part,
                                std::span<const int> states_of_rule) const;

 private:
  // Calls in_arena(memory, bytes) for the elements that are kept there, then lets the tier visit
  // the rest.
  template <class InArena>
  void split(const ArrayId& array, const Range& range, Access access, const InArena& in_arena,
             const PartVisitor& visitor);

  RuntimeCore& runtime_;
  const EnginePlan& plan_;
  ModelState& state_;
  OffloadTier* tier_;  // null if everything is kept in the arena
  ChangeBits& changes_;
  std::vector<std::byte> staging_;  // for a piece that the host cannot address
};

}  // namespace zero::detail
