// The arrays of a rank's segments (parameters, gradients, master weights and optimizer state) and
// the slots they pass through, all taken from arenas of a size that is known in advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/plan/arrays.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/memory_requests.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// Elements of a segment that belong to the same optimizer group.
struct GroupRange : Range {
  int group = 0;
  // Position of `begin` in each array of SegmentBuffers::states; -1: the group has no such state.
  std::vector<std::int64_t> state_begin = {};
};

// Addresses of a segment's arrays. Each points to the array's first element that this rank keeps.
struct SegmentBuffers : SegmentTypes {
  std::byte* whole = nullptr;  // the whole parameter: a slot, or separate memory if kept whole
  // This rank's shard: a part of `whole` if that is kept, unless gathered in a wire format; if the
  // shard is offloaded, the source buffer of the gather.
  std::byte* shard = nullptr;
  std::byte* second_copy = nullptr;     // StatePolicy::second_copy() of the parameter
  std::byte* gradient_whole = nullptr;  // written by backward
  std::byte* accumulated = nullptr;     // the whole sum over micro steps, if any
  std::byte* gradient_shard = nullptr;  // this rank's reduced shard; may be a part of these two
  std::byte* group_sums = nullptr;      // Role::group_sums
  std::byte* group_sum = nullptr;       // Role::group_sum
  std::byte* open_group = nullptr;      // Role::open_group
  // Destination of the reduction of an offloaded shard, in the wire dtype; otherwise null.
  std::byte* landing = nullptr;
  Range held;  // the range of the segment in `shard` and `gradient_shard`
  // The range that this rank updates. The first `resident` elements keep gradient shard, master
  // weights and states in memory.
  Range updated;
  bool updates_all = false;  // without a sharded optimizer
  std::int64_t resident = 0;
  bool in_norm = true;  // whether the gradient norm of a step counts this rank's measurement
  std::byte* master = nullptr;  // the parameter itself if that has the master's dtype
  // Per state name; each array contains, without gaps, the elements of groups with that state.
  std::vector<std::byte*> states;
  std::vector<std::int64_t> state_counts;
  std::vector<GroupRange> runs;

  // Returns the position of a segment's element in the array of a state; for an element without
  // that state, the position of the next element with the state.
  std::int64_t state_position(int state, std::int64_t element) const;
  // Whether every element that this rank updates has the state.
  bool has_whole_state(int state) const { return state_counts[state] == updated.count(); }

  std::byte*& pointer(Role role);
  std::byte* pointer(Role role) const { return const_cast<SegmentBuffers&>(*this).pointer(role); }
  DType dtype_of(ArrayKind kind) const;
  Range range_of(const Chunk& chunk) const {
    return {updated.begin + chunk.begin, updated.begin + chunk.begin + chunk.count};
  }
  // Whether master weights are a separate array.
  bool has_master() const { return master_dtype != dtype; }
  // Whether the kind refers to the parameter: a parameter without master weights serves as master.
  bool is_parameter(ArrayKind kind) const {
    return kind == ArrayKind::parameter || (kind == ArrayKind::master && !has_master());
  }
  // The whole gradient in the dtype of sums; valid only if kept whole.
  std::byte* sum_whole() const { return accumulated != nullptr ? accumulated : gradient_whole; }
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
  SegmentBuffers& segment(const SegmentId& id) { return buffers_[id]; }
  const SegmentBuffers& segment(const SegmentId& id) const { return buffers_[id]; }
  // Staging of the update: the sums for the norms of each parameter and of the direction, and the
  // arrays of MatrixStaging.
  std::int64_t* tensor_norms() const { return tensor_norms_; }
  float* directions() const { return directions_; }
  float* matrices() const { return matrices_; }
  float* matrix_scratch() const { return matrix_scratch_; }

  // `state` is an index into StatePolicy::optimizer_states.
  bool has_state(int param, int state) const;
  // The source buffers for gathers of offloaded shards.
  std::vector<std::span<std::byte>> shard_buffers() const;

 private:
  void set_dtypes(const SegmentId& id);
  void make_group_ranges(const SegmentId& id);
  void request(const PlannedArrays& planned);
  void request_optimizer();
  void request_update_staging(const MatrixStaging& matrices);
  // Staging of gradient and parameter exchanges: casts, group sums, encoded slices and summands.
  void request_exchange_staging(const Routes& routes);
  // Bytes for the casts, packing and sums of groups that are sent in a piece of a sum or a fold.
  std::int64_t sent_bytes(const Route& sum, std::int64_t piece) const;
  void request_group_sums(const Routes& routes);
  void derive_pointers();
  void add_group_range(SegmentBuffers& buffers, GroupRange run) const;

  const Layout& layout_;
  const StatePolicy& policy_;
  const OffloadPlan& offload_;
  const UpdateGroups& updates_;
  BySegment<SegmentBuffers> buffers_;
  MemoryRequests requests_;
  std::byte *staging_ = nullptr, *wire_staging_ = nullptr, *received_summands_ = nullptr,
            *group_block_ = nullptr;
  std::int64_t* tensor_norms_ = nullptr;
  float *directions_ = nullptr, *matrices_ = nullptr, *matrix_scratch_ = nullptr;
};

}  // namespace zero::detail
