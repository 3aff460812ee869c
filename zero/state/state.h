// The arrays of one rank's segments (parameters, gradients, master weights and optimizer state) and
// the slots they pass through, all taken from arenas whose size is known before anything is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/memory_requests.h"
#include "zero/state/residues.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// Elements of a segment that belong to one optimizer group.
struct GroupRange : Range {
  int group = 0;
  // Where `begin` lies in each array of SegmentBuffers::states; -1: the group has no such state.
  std::vector<std::int64_t> state_begin = {};
};

// Where the arrays of a segment lie. Each pointer is to the array's first element that this rank
// keeps.
struct SegmentBuffers : SegmentTypes {
  std::byte* whole = nullptr;  // the whole parameter: a slot, or where it is kept whole
  // This rank's shard: a part of `whole` where that is kept, unless it is gathered in a wire
  // format; where the shard is offloaded, the buffer from which it is gathered.
  std::byte* shard = nullptr;
  std::byte* second_copy = nullptr;     // of the gathered parameter: StatePolicy::second_copy()
  std::byte* gradient_whole = nullptr;  // what backward writes
  std::byte* accumulated = nullptr;     // the whole sum over micro steps, where there is one
  std::byte* gradient_shard = nullptr;  // this rank's reduced shard; may be a part of either
  std::byte* group_sums = nullptr;      // Role::group_sums
  std::int64_t group_sum_at = 0;        // bytes from the first of its unit: Role::group_sum
  // Where a shard that is offloaded is reduced to, in the dtype of the wire; else null.
  std::byte* landing = nullptr;
  Range held;  // what `shard` and `gradient_shard` hold of the segment
  // What this rank updates. Its first `resident` elements keep their gradient shard, master weights
  // and states in memory.
  Range updated;
  std::int64_t resident = 0;
  std::byte* master = nullptr;  // the parameter itself where that has the master's dtype
  // By name; each array holds, without gaps, the elements whose group has that state.
  std::vector<std::byte*> states;
  std::vector<std::int64_t> state_counts;
  std::vector<GroupRange> runs;

  // Where an element of the segment lies in the array of a state; of an element without that state,
  // where the next one that has it lies.
  std::int64_t state_position(int state, std::int64_t element) const;
  // Every element that this rank updates has the state.
  bool has_whole_state(int state) const { return state_counts[state] == updated.count(); }

  DType dtype_of(ArrayKind kind) const;
  Range range_of(const Chunk& chunk) const {
    return {updated.begin + chunk.begin, updated.begin + chunk.begin + chunk.count};
  }
  // Whether master weights are an array of their own.
  bool has_master() const { return master_dtype != dtype; }
  // Whether it names the parameter: a parameter without such an array is its own master.
  bool is_parameter(ArrayKind kind) const {
    return kind == ArrayKind::parameter || (kind == ArrayKind::master && !has_master());
  }
  // The whole gradient in the dtype of sums; meaningful where it is kept whole.
  std::byte* sum_whole() const { return accumulated != nullptr ? accumulated : gradient_whole; }
};

class ModelState {
 public:
  // The plan outlives it.
  explicit ModelState(const EnginePlan& plan);

  // Enters the bytes into the ledger's plan. Then allocate() takes them.
  void plan(Ledger& ledger) const { requests_.plan(ledger); }
  std::int64_t bytes() const { return requests_.bytes(); }
  void allocate(Arena& arena, Ledger& ledger);

  const StatePolicy& policy() const { return policy_; }
  // Where gradients are cast for one piece of a reduction; null where none are.
  std::byte* staging() const { return staging_; }
  // The encoded slices of one piece of a gather or of a reduction; null where none is encoded.
  std::byte* wire_staging() const { return wire_staging_; }
  const Residues& residues() const { return residues_; }
  // The memory that a route names.
  std::byte* array(const SegmentId& id, const ArrayRef& ref) const;
  SegmentBuffers& segment(const SegmentId& id) { return buffers_[id]; }
  const SegmentBuffers& segment(const SegmentId& id) const { return buffers_[id]; }
  // Staging of the update: the sums behind the norms of each parameter and of its direction, and
  // what MatrixStaging lists.
  std::int64_t* tensor_norms() const { return tensor_norms_; }
  float* directions() const { return directions_; }
  float* matrices() const { return matrices_; }
  float* matrix_scratch() const { return matrix_scratch_; }

  // By index into StatePolicy::optimizer_states.
  bool has_state(int param, int state) const;
  // The buffers from which offloaded shards are gathered.
  std::vector<std::span<std::byte>> shard_buffers() const;

 private:
  void set_dtypes(const SegmentId& id);
  void make_runs(const SegmentId& id);
  // Calls each(id, place) for the segments of flat units that have a slot; place(pointer, bytes)
  // puts an array behind those before it in the unit's slot.
  template <class Each>
  void request_slots(MemoryCategory category, const SlotAssignment& slots, const Each& each);
  void request_parameters(const SlotAssignment& slots);
  void request_gradients(const SlotAssignment& slots, const Routes& routes);
  void request_optimizer();
  void request_update_staging(const MatrixStaging& matrices);
  // For exchanges of gradients and parameters: casts, group sums and encoded slices.
  void request_exchange_staging(const Routes& routes);
  // Gives each segment its place among the group sums of its unit. Returns the bytes of the
  // largest.
  std::int64_t place_group_sums(const Routes& routes);
  void derive_pointers();
  void add_run(SegmentBuffers& buffers, GroupRange run) const;

  const Layout& layout_;
  const StatePolicy& policy_;
  const OffloadPlan& offload_;
  const UpdateGroups& updates_;
  BySegment<SegmentBuffers> buffers_;
  MemoryRequests requests_;
  Residues residues_;
  std::byte *staging_ = nullptr, *group_sums_ = nullptr, *wire_staging_ = nullptr;
  std::int64_t* tensor_norms_ = nullptr;
  float *directions_ = nullptr, *matrices_ = nullptr, *matrix_scratch_ = nullptr;
};

}  // namespace zero::detail
