// The one way to the arrays of this rank's elements (parameter, gradient, master weights, optimizer
// states), wherever they rest: whoever saves, loads, reads, fills or updates them asks
// here for parts in host memory and does not know of tiers or devices. One thread; positions are
// elements from the start of the segment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/plan/chunks.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/outer_tier.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// What the update of a chunk reads and writes; pointers are to its first element and hold until the
// chunk's update ends.
struct ChunkView {
  std::int64_t begin = 0, count = 0;
  DType dtype = DType::fp32;  // of the parameter
  DType gradient_dtype = DType::fp32, master_dtype = DType::fp32, state_dtype = DType::fp32;
  const std::byte* gradient = nullptr;
  std::byte* master = nullptr;
  std::vector<std::byte*> states;  // by name; to the first element of the chunk that has the state
  std::byte* parameter = nullptr;  // 16-bit copy to be written; null where master is the parameter
};

class StateStore {
 public:
  StateStore(RuntimeCore& runtime, const Layout& layout, ModelState& state,
             const std::vector<Chunk>& chunks, OuterTier* tier)
      : runtime_(runtime), layout_(layout), state_(state), chunks_(chunks), tier_(tier) {}

  // "value", "grad", "master" or the name of an optimizer state; nothing where the segment has no
  // such array. Throws UsageError for an unknown name.
  std::optional<ArrayId> find(int flat_unit, int segment, std::string_view what) const;
  DType dtype_of(const ArrayId& array) const;
  // Whether the array has the elements of this parameter of its segment: states may be those of
  // some parameters alone.
  bool holds(const ArrayId& array, int param) const;

  // Whether another thread may visit to read while a step runs, but for what is being updated.
  bool readable_beside_steps() const { return runtime_.device().is_host() && tier_ == nullptr; }

  // Shows elements [begin, end), which must be this rank's, part by part in order. Between steps,
  // or between the reductions and the update of one. A part is gone when the visitor returns.
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor);
  void read(const ArrayId& array, std::int64_t begin, std::int64_t end, std::byte* to);
  void write(const ArrayId& array, std::int64_t begin, std::span<const std::byte> from);

  // This rank's elements below it rest in the arena.
  std::int64_t end_in_memory(const ArrayId& array) const;

  // Where element `at`, which rests in the arena, does so.
  const std::byte* address(const ArrayId& array, std::int64_t at) const {
    return resident(array, at);
  }

  // During the update of the chunk with this number.
  ChunkView view(int chunk) const;

 private:
  // In the arena; null where they rest outside.
  std::byte* parameters_of(const Chunk& chunk) const;
  // Element `at` of an array that rests in memory.
  std::byte* resident(const ArrayId& array, std::int64_t at) const;

  RuntimeCore& runtime_;
  const Layout& layout_;
  ModelState& state_;
  const std::vector<Chunk>& chunks_;
  OuterTier* tier_;                 // null: all rests in the arena
  std::vector<std::byte> staging_;  // of a part whose home the host cannot reach
};

// Between steps: to or from the device, or on it.
void copy_and_wait(RuntimeCore& runtime, void* to, const void* from, std::int64_t bytes);

}  // namespace zero::detail
