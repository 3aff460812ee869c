// The state of a GPU rank's chunks that are updated in host memory: gradients, which arrive from
// the GPU, fp32 master weights and optimizer states, and the slots through which new parameters
// return; or the parameter shards themselves, which are supplied to be gathered. What of it rests
// in a file passes through the memory of a FileTier, which this knows and asks. What crosses to the
// GPU is page-locked; master weights and states, which do not, where the config says so. Owned by
// the engine.
//
// download(), upload() and supply() queue copies on their streams; in_slot() and finish_update()
// serve the chunk's update, on the thread of the host's stream; visit() and note_written() between
// steps, on the program's thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zero/base/ledger.h"
#include "zero/plan/step_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/copy_meter.h"
#include "zero/state/file_tier.h"
#include "zero/state/outer_tier.h"
#include "zero/state/state.h"

namespace zero::detail {

class HostTier final : public OuterTier {
 public:
  // All but the config outlive it; no file where nothing rests in one.
  HostTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
           const Config& config, FileTier* file);

  // Enters its bytes into the ledger's plan; open() takes them, after the state's buffers.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  void give_back(Ledger& ledger) const;
  std::string describe() const;

  // Reduced gradients of a flat unit's chunks, from the GPU. Those that have no place of their own
  // there add their norm to the word, and leave what stays to its place.
  void download(int flat_unit, optim::StepWord* word, Stream stream);
  // The chunk's parameters, to the GPU.
  void upload(int chunk, Stream stream);
  // A flat unit's parameter shard, to the buffer from which it is gathered.
  void supply(int flat_unit, Stream stream);
  // Makes the chunk's slot what its parameters are to be, after an update or without one.
  void finish_update(int chunk, bool updated);
  // By CopyDirection: gradients, and parameters. While nothing else calls the tier.
  std::array<CopyTotal, copy_directions> copied() { return copies_.totals(); }

  std::int64_t first_outside(const ArrayId& array) const override;
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor) override;
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const override;
  void note_written(const ArrayId& array, std::int64_t begin,
                    std::span<const std::byte> bytes) override;

 private:
  // A chunk's arrays that rest here, each from its first element on. Where the parameter is its own
  // master, the one here is a copy of what the GPU has, or null where the parameter rests
  // elsewhere.
  struct Home {
    std::byte* gradient = nullptr;
    std::byte* master = nullptr;
    std::vector<std::byte*> states;
  };

  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  const SegmentBuffers& buffers(const Chunk& chunk) const {
    return state_.segment(chunk.flat_unit, chunk.segment);
  }
  // Where its new parameters lie, of a chunk that has a slot.
  std::byte* slot_of(int number) const {
    if (file_ != nullptr) return file_->in_slot(number, ArrayKind::parameter);
    return slots_ + chunk(number).slot * slot_bytes_;
  }
  bool keeps_copy(const Chunk& chunk) const {
    return inputs_.offload.uploads(chunk) && !chunk.state_in_file && !buffers(chunk).has_master();
  }
  bool on_gpu(int flat_unit) const { return inputs_.offload.shard_slot(flat_unit) < 0; }
  bool holds_parameters(int flat_unit) const {
    return !on_gpu(flat_unit) && !inputs_.offload.fetches(flat_unit);
  }
  bool in_file(const Chunk& chunk, ArrayKind kind) const;
  // Of this rank's slice.
  std::byte* parameters_of(int flat_unit, int segment) const {
    return parameters_[flat_unit][segment];
  }
  bool is_parameter(const ArrayId& array) const;
  void keep_resident(int flat_unit, Stream stream);
  // Where an update leaves the parameters.
  std::byte* parameters_of(int chunk) const;
  void add_chunk(const Chunk& chunk);
  void round_parameters(int chunk, const std::byte* master);
  void add_parameters(int flat_unit);
  void place();
  std::int64_t bytes_of(MemoryCategory category) const;
  // Calls each(category, bytes, tier).
  template <class Each>
  void for_accounts(const Each& each) const;
  std::int64_t slots_bytes() const { return inputs_.offload.state_slots * slot_bytes_; }
  std::int64_t crossing_bytes() const;
  std::int64_t resting_bytes() const;

  RuntimeCore& runtime_;
  const PlanInputs& inputs_;
  const ModelState& state_;
  FileTier* file_;
  bool pins_all_;
  CopyMeter copies_;
  std::map<MemoryCategory, std::int64_t> bytes_;
  std::int64_t slot_bytes_ = 0;
  Arena crossing_, resting_;
  std::byte* slots_ = nullptr;
  std::vector<Home> homes_;                          // by chunk
  std::vector<std::vector<std::byte*>> parameters_;  // by flat unit and segment
};

}  // namespace zero::detail
