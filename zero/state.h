// The buffers behind the flat units of one rank: parameters, gradients, master weights and
// optimizer state, all cut from one arena whose size is known before anything is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/layout.h"
#include "zero/slots.h"

namespace zero::detail {

struct StatePolicy {
  int rank = 0;
  DType compute_dtype = DType::fp32;
  bool parameters_sharded = false;    // rest as shards, gathered into slots
  bool optimizer_sharded = false;     // each rank updates its slice
  bool gradients_whole = false;       // a whole-size gradient per unit, instead of slots and shards
  bool separate_accumulator = false;  // whole-size gradients are reduced into a shard beside them
  std::vector<std::string> optimizer_states;  // fp32 arrays per element, by name
};

// Elements [begin, end) of a segment that one parameter group's hyper-parameters hold for.
struct UpdateRun {
  std::int64_t begin = 0, end = 0;
  int group = 0;
};

// Pointers are to element 0 of what they name, unless said otherwise.
struct SegmentBuffers {
  DType dtype = DType::fp32;
  std::byte* whole = nullptr;           // the whole parameter, when gathered or resting whole
  std::byte* shard = nullptr;           // this rank's slice; inside `whole` where that rests
  std::byte* gradient_whole = nullptr;  // what backward writes
  std::byte* gradient_shard = nullptr;  // this rank's reduced slice; may lie in gradient_whole
  // Of the elements that this rank updates.
  std::int64_t update_begin = 0, update_count = 0;
  float* master = nullptr;  // the parameter itself where that is fp32
  std::vector<float*> states;
  std::vector<UpdateRun> runs;

  bool has_separate_shard(const Segment& segment, int rank) const {
    return gradient_shard != gradient_whole + rank * segment.shard * size_of(dtype);
  }
};

class ModelState {
 public:
  ModelState(const Model& model, const Layout& layout, const SlotAssignment& parameter_slots,
             const SlotAssignment& gradient_slots, StatePolicy policy);

  // Enters the bytes into the ledger's plan. Then allocate() takes them.
  void plan(Ledger& ledger) const;
  std::int64_t bytes() const;
  void allocate(Arena& arena, Ledger& ledger);
  void give_back(Ledger& ledger) const;

  const StatePolicy& policy() const { return policy_; }
  SegmentBuffers& segment(int flat, int segment) {
    return buffers_[static_cast<std::size_t>(flat)][static_cast<std::size_t>(segment)];
  }
  const SegmentBuffers& segment(int flat, int segment) const {
    return buffers_[static_cast<std::size_t>(flat)][static_cast<std::size_t>(segment)];
  }
  // Parameter groups by index, as UpdateRun::group counts them.
  const std::vector<std::pair<std::string, bool>>& groups() const { return groups_; }

 private:
  // A piece of the arena, and what points into it.
  struct Request {
    MemoryCategory category;
    std::int64_t bytes = 0;
    std::vector<std::pair<std::byte**, std::int64_t>> targets;  // pointer, offset in bytes
  };

  void request_parameters(const SlotAssignment& slots);
  void request_gradients(const SlotAssignment& slots);
  void request_optimizer();
  void request(MemoryCategory category, std::int64_t bytes, std::byte** target);
  void derive_pointers();
  void make_runs(const Model& model);

  const Layout& layout_;
  StatePolicy policy_;
  std::vector<std::vector<SegmentBuffers>> buffers_;
  std::vector<Request> requests_;
  std::vector<std::pair<std::string, bool>> groups_;  // name, decay
};

}  // namespace zero::detail
