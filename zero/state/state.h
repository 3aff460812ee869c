// The arrays of a rank's segments (parameters, gradients, master weights and optimizer state) and
// the slots they pass through, all taken from arenas of a size that is known in advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/memory_requests.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// The memory of one array of a segment.
struct ArrayMemory {
  std::byte* data = nullptr;  // null: no such array
  std::int64_t first = 0;     // the element of the segment that `data` has first
  DType dtype = DType::fp32;

  // The address of an element of the segment.
  std::byte* of(std::int64_t element) const { return data + (element - first) * size_of(dtype); }
};

// The arrays of a segment, by kind, except the states.
struct SegmentArrays : SegmentTypes, ByKind<ArrayMemory> {
  Range held;  // the range of the segment in the shards of parameters and gradients
  // The range that this rank updates. The first `resident` elements keep gradient shard, master
  // weights and states in memory.
  Range updated;
  bool updates_all = false;  // without a sharded optimizer
  std::int64_t resident = 0;
  bool in_norm = true;  // whether the gradient norm of a step counts this rank's measurement
  // Per state name; each array contains, without gaps, the elements of groups with that state.
  std::vector<std::byte*> states;
  const GroupRanges* groups = nullptr;

  // Whether every element that this rank updates has the state.
  bool has_whole_state(int state) const { return groups->state_counts[state] == updated.count(); }
  // The whole gradient in the dtype of sums; valid only if kept whole.
  std::byte* sum_whole() const {
    const ArrayMemory& sum = (*this)[ArrayKind::accumulated];
    return sum.data != nullptr ? sum.data : (*this)[ArrayKind::gradient].data;
  }
};

class ModelState {
 public:
  // The plan must outlive this object.
  explicit ModelState(const EnginePlan& plan);

  // Adds the bytes to the ledger's plan; allocate() then takes the memory.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  std::int64_t bytes() const { return requests_.bytes(); }
  void allocate(Arena& arena, Ledger& ledger);

  const StatePolicy& policy() const { return policy_; }
  // Staging to cast and pack gradients, for a piece of a reduction; null if none are cast or
  // packed.
  std::byte* staging() const { return staging_; }
  // Encoded slices of a piece of a gather or of a reduction; null if none is encoded.
  std::byte* wire_staging() const { return wire_staging_; }
  // Summands of all ranks for a piece of a fold, in rank order; null without folds over ranks.
  std::byte* received_summands() const { return received_summands_; }
  // The sum of a group of summands in a block of a piece of a fold, in fp32; null if groups have
  // one summand, or the sums of groups that stay open are kept.
  std::byte* group_block() const { return group_block_; }
  // Returns the memory that a route refers to.
  std::byte* array(const SegmentId& id, const ArrayRef& ref) const;
  SegmentArrays& segment(const SegmentId& id) { return arrays_[id]; }
  const SegmentArrays& segment(const SegmentId& id) const { return arrays_[id]; }
  // Staging of the update: the sums for the norms of each parameter and of the direction, and the
  // arrays of MatrixStaging.
  std::int64_t* tensor_norms() const { return tensor_norms_; }
  float* directions() const { return directions_; }
  float* matrices() const { return matrices_; }
  float* matrix_scratch() const { return matrix_scratch_; }

  // Returns the memory of an array that a unit keeps: the arrays of the unit's first use in a pass,
  // then those of the second.
  std::byte* kept(int unit, std::size_t number) const {
    return kept_[table_.first_kept[unit] + number];
  }
  // The source buffers for gathers of offloaded shards.
  std::vector<std::span<std::byte>> shard_buffers() const;

 private:
  void describe(const SegmentId& id);
  void request(const ArrayPool& pool);
  void request_update_staging(std::int64_t norm_words, const MatrixStaging& matrices);
  // Staging of gradient and parameter exchanges: casts, group sums, encoded slices and summands.
  void request_exchange_staging(const Routes& routes);
  // Bytes for the casts, packing and sums of groups that are sent in a piece of a sum or a fold.
  std::int64_t sent_bytes(const Route& sum, std::int64_t piece) const;
  std::byte*& address(const ArrayRow& row);

  const Layout& layout_;
  const StatePolicy& policy_;
  const OffloadPlan& offload_;
  const ArrayTable& table_;
  BySegment<SegmentArrays> arrays_;
  std::vector<std::byte*> kept_;  // per row of Pool::kept
  MemoryRequests requests_;
  std::byte *staging_ = nullptr, *wire_staging_ = nullptr, *received_summands_ = nullptr,
            *group_block_ = nullptr;
  std::int64_t* tensor_norms_ = nullptr;
  float *directions_ = nullptr, *matrices_ = nullptr, *matrix_scratch_ = nullptr;
};

}  // namespace zero::detail
