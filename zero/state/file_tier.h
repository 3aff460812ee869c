// What of a rank's state rests in a file instead of memory, and its way there and back: chunks
// through their slots, parameter shards through the buffers they are gathered from, gradients as
// they are reduced. Beside a GPU all of these are page-locked host memory, from and to which
// HostTier copies. Owned by the engine. load(), recall() and fetch() run on the file-read stream,
// store() and spill() on the file-write stream, visit() on the program's thread while those two are
// idle or, between agreement and update, at other arrays.
//
// A chunk passes through its slot array by array, each from a page on: gradient, parameter (where
// it rests in the file, or leaves the slot for a GPU), master, states.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/block_store.h"
#include "optim/gradient_norm.h"
#include "zero/base/arena.h"
#include "zero/base/device.h"
#include "zero/base/ledger.h"
#include "zero/plan/step_plan.h"
#include "zero/state/outer_tier.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

class FileTier final : public OuterTier {
 public:
  // All but the config outlive it.
  FileTier(Device& device, const PlanInputs& inputs, ModelState& state, const Config& config);
  FileTier(const FileTier&) = delete;
  ~FileTier() override;

  // Enters memory and file into the ledger's plan; open() takes them, after the state's buffers.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  void give_back(Ledger& ledger) const;
  const std::vector<std::string>& notices() const { return store_->notices(); }
  std::string describe() const;

  // Without its gradient where the chunk is read ahead: recall() brings that.
  void load(int chunk);
  void recall(int chunk);
  void store(int chunk);
  void fetch(int flat_unit);
  // Of what lies reduced in the gradient slot, or beside a GPU in the staging; `first` and `last`
  // reduction of a step.
  void spill(int flat_unit, bool first, bool last);
  // Beside a GPU: where a chunk's gradient is spilled from.
  std::byte* staging_of(int chunk) const;
  // Where this rank's slice of a segment is fetched to.
  std::byte* shard_of(int flat_unit, int segment) const;

  // Squares of the gradients that went to the file in the last spills, since the last call.
  optim::NormBins take_squares();

  std::int64_t first_outside(const ArrayId& array) const override;
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor) override;
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const override;

  // Of the file-read stream and the file-write stream, which also reads the gradients that it adds
  // to. Any thread may ask.
  std::array<offload::ChannelUse, 2> uses() const { return {read_->use(), write_->use()}; }

 private:
  const Segment& segment_of(const ArrayId& array) const;
  // One array of one chunk.
  struct Part {
    ArrayId array;
    std::int64_t begin = 0, count = 0;  // elements of the segment
    int chunk = -1;                     // none: nothing updates it
    int extent = nowhere;
    std::int64_t slot_offset = 0;     // bytes
    std::int64_t staging_offset = 0;  // bytes, of a gradient beside a GPU
  };
  static constexpr int nowhere = -1;

  bool beside_gpu() const { return inputs_.offload.on_host; }
  Tier tier() const { return beside_gpu() ? Tier::pinned : Tier::memory; }
  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  std::vector<ArrayId> arrays_of(const Chunk& chunk) const;
  bool rests_in_file(const Chunk& chunk, const ArrayId& array) const;
  void add_parts(int chunk);
  void add_frozen(int flat_unit, int segment);
  void add_staging();
  void add_shards();
  int add_extent(const ArrayId& array, std::int64_t begin, std::int64_t count);
  std::int64_t buffer_bytes() const;
  DType dtype_of(const ArrayId& array) const;
  std::byte* slot_of(int chunk) const;
  // Into the chunk's slot, of its parts whose array is wanted.
  template <class Wanted>
  void read_parts(int chunk, const Wanted& wanted);
  void spill_part(const Part& part, bool first, bool last);
  void spill_staged(int flat_unit);
  void spill_resident(int flat_unit, int segment, bool first);
  void visit_part(const Part& part, std::int64_t begin, std::int64_t end, Access access,
                  const PartVisitor& visitor);
  void write_zeros();

  Device& device_;
  const PlanInputs& inputs_;
  ModelState& state_;
  bool fast_init_;
  std::int64_t window_bytes_;  // of a visit
  std::unique_ptr<offload::BlockStore> store_;
  std::map<MemoryCategory, std::int64_t> in_file_;               // bytes
  std::vector<std::vector<Part>> chunk_parts_;                   // by chunk
  std::vector<std::vector<std::vector<Part>>> parameter_parts_;  // by flat unit and segment
  std::int64_t slot_bytes_ = 0, spill_bytes_ = 0, shard_bytes_ = 0;
  int spill_buffers_ = 1;  // beside a GPU, by gradient slot
  // Beside a GPU, by flat unit and segment: bytes from the start of the shard's buffer.
  std::vector<std::vector<std::int64_t>> shard_offsets_;
  // Slots, buffers of shards, of spills, and the window of visits, in this order.
  Arena arena_;
  std::byte *shards_ = nullptr, *spill_buffer_ = nullptr, *window_ = nullptr;
  std::unique_ptr<offload::BlockStore::Channel> read_, write_, visit_;
  optim::NormBins squares_;
};

}  // namespace zero::detail
