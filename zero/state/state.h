// The buffers behind the flat units of one rank: parameters, gradients, master weights and
// optimizer state, all cut from one arena whose size is known before anything is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/plan/chunks.h"
#include "zero/plan/layout.h"
#include "zero/plan/slots.h"
#include "zero/plan/state_policy.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// Elements [begin, end) of a segment that belong to one optimizer group.
struct UpdateRun {
  std::int64_t begin = 0, end = 0;
  int group = 0;
  // Where `begin` lies in each array of SegmentBuffers::states; -1: the group has no such state.
  std::vector<std::int64_t> state_begin;
};

// Pointers are to element 0 of what they name, unless said otherwise.
struct SegmentBuffers {
  DType dtype = DType::fp32;    // of the parameter, and of the gradient as backward writes it
  DType wire = DType::fp32;     // of the gradient between ranks; one rank alone: of what it sums up
  DType sum = DType::fp32;      // of the gradient at rest
  DType summand = DType::fp32;  // of what is reduced
  DType master_dtype = DType::fp32, state_dtype = DType::fp32;
  bool adds_up = false;        // that is the sum of several gradients
  std::byte* whole = nullptr;  // the whole parameter, when gathered or resting whole
  // This rank's slice: inside `whole` where that rests; where the slice rests in a file, the buffer
  // from which it is gathered.
  std::byte* shard = nullptr;
  std::byte* gradient_whole = nullptr;  // what backward writes
  std::byte* accumulated = nullptr;     // a whole one in the dtype of sums, where there is one
  std::byte* gradient_shard = nullptr;  // this rank's reduced slice; may lie in one of the wholes
  // Where the reduced slice waits, in the dtype of the wire, to go to a file; null where none does.
  std::byte* landing = nullptr;
  // Of the elements that this rank updates. The first `resident` have what follows, and their
  // gradient shard, in memory.
  std::int64_t update_begin = 0, update_count = 0, resident = 0;
  std::byte* master = nullptr;  // the parameter itself where that has the master's dtype
  // By name; each holds, without gaps, the elements whose group has that state.
  std::vector<std::byte*> states;
  std::vector<std::int64_t> state_counts;
  std::vector<UpdateRun> runs;

  // Where the first element from this one on (within the segment) that has the state lies in its
  // array.
  std::int64_t state_position(std::size_t state, std::int64_t element) const;
  // Every element that this rank updates has the state.
  bool has_whole_state(std::size_t state) const { return state_counts[state] == update_count; }

  DType dtype_of(ArrayKind kind) const;
  // Apart from the parameter.
  bool has_master() const { return master_dtype != dtype; }
  // What a reduction sums up.
  std::byte* summands() const { return adds_up ? accumulated : gradient_whole; }
  // The whole gradient in the dtype of sums; meaningful where it rests whole.
  std::byte* sum_whole() const { return accumulated != nullptr ? accumulated : gradient_whole; }
};

class ModelState {
 public:
  ModelState(const Layout& layout, const SlotAssignment& parameter_slots,
             const SlotAssignment& gradient_slots, StatePolicy policy,
             const OffloadPlan& offload = {});

  // Enters the bytes into the ledger's plan. Then allocate() takes them.
  void plan(Ledger& ledger) const;
  std::int64_t bytes() const { return exchanged_bytes() + resting_bytes(); }
  // Of the buffers that ranks exchange, and of master weights and optimizer states, which rest.
  std::int64_t exchanged_bytes() const;
  std::int64_t resting_bytes() const;
  // The same arena may serve for both.
  void allocate(Arena& exchanged, Arena& resting, Ledger& ledger);
  void give_back(Ledger& ledger) const;

  const StatePolicy& policy() const { return policy_; }
  // Of one piece of a reduction, where gradients are cast for the way; null where none is.
  std::byte* staging() const { return staging_; }
  SegmentBuffers& segment(int flat, int segment) { return buffers_[flat][segment]; }
  SegmentBuffers& segment(const SegmentId& id) { return segment(id.flat_unit, id.segment); }
  const SegmentBuffers& segment(const SegmentId& id) const {
    return segment(id.flat_unit, id.segment);
  }
  const SegmentBuffers& segment(int flat, int segment) const { return buffers_[flat][segment]; }
  // Staging of the update: the sums behind the norms of each parameter and of its direction, and
  // what MatrixStaging lists.
  std::int64_t* tensor_norms() const { return reinterpret_cast<std::int64_t*>(tensor_norms_); }
  float* directions() const { return reinterpret_cast<float*>(directions_); }
  float* matrices() const { return reinterpret_cast<float*>(matrices_); }
  float* matrix_scratch() const { return reinterpret_cast<float*>(matrix_scratch_); }

  // By index into StatePolicy::optimizer_states.
  bool has_state(int param, std::size_t state) const;
  // The buffers from which shards that rest in a file are gathered.
  std::vector<std::span<std::byte>> shard_buffers() const;

 private:
  // A piece of the arena, and what points into it.
  struct Request {
    MemoryCategory category;
    std::int64_t bytes = 0;
    std::vector<std::pair<std::byte**, std::int64_t>> targets;  // pointer, offset in bytes
  };

  void request_shard_buffers();
  void request_parameters(const SlotAssignment& slots);
  void request_gradients(const SlotAssignment& slots);
  void request_optimizer();
  void request_staging();
  void request(MemoryCategory category, std::int64_t bytes, std::byte** target);
  void derive_pointers();
  void make_runs();
  void add_run(SegmentBuffers& buffers, UpdateRun run) const;
  std::vector<std::int64_t> no_states() const {
    return std::vector<std::int64_t>(policy_.optimizer_states.size(), -1);
  }

  const Layout& layout_;
  StatePolicy policy_;
  OffloadPlan offload_;
  std::vector<std::vector<SegmentBuffers>> buffers_;
  std::byte* staging_ = nullptr;
  std::vector<Request> requests_;
  std::byte *tensor_norms_ = nullptr, *directions_ = nullptr, *matrices_ = nullptr,
            *matrix_scratch_ = nullptr;
};

}  // namespace zero::detail
