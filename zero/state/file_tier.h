// Keeps the offloaded part of a rank's state in a file, and moves it between there and memory:
// chunks to and from their slots, parameter shards to the buffers from which they are gathered, and
// gradients to the file as they are reduced. Beside a GPU all of these buffers are page-locked host
// memory, from and to which HostTier copies. Owned by the engine.
//
// load(), recall() and fetch() run on the stream of file reads, store() and spill() on the stream
// of file writes. visit() runs on the program's thread, while those two are idle or, between
// agreement and update, work on other arrays.
//
// In its slot a chunk's arrays lie one behind another, each starting on a page: gradient, parameter
// (where the file or a GPU keeps it), master weights, states.
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
#include "zero/state/outer_tier.h"

namespace zero::detail {

class FileTier final : public OuterTier {
 public:
  // All but the config outlive it.
  FileTier(Device& device, const PlanInputs& inputs, const ModelState& state, const Config& config);
  ~FileTier() override;

  // Enters memory and file into the ledger's plan; open() takes them, once the state has its
  // memory.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  void give_back(Ledger& ledger) const;
  const std::vector<std::string>& notices() const { return store_->notices(); }
  std::string describe() const;

  // Leaves out the gradient where the chunk is read ahead; recall() reads that.
  void load(int chunk);
  void recall(int chunk);
  void store(int chunk);
  void fetch(int flat_unit);
  // Writes what was reduced to the gradient slot, or beside a GPU what was copied to the staging.
  // `first` and `last`: of the reductions of a step.
  void spill(int flat_unit, bool first, bool last);
  // Beside a GPU: where a chunk's gradient is spilled from.
  std::byte* staging_of(int chunk) const;
  // Where this rank's shard of a segment is fetched to.
  std::byte* shard_of(const SegmentId& id) const;

  // The squares of the gradients that last spills have written since the last call.
  optim::NormSum take_squares();

  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor) override;
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const override;

  // Of the stream of reads and of the stream of writes, which also reads the gradients that it adds
  // to. Any thread may ask.
  std::array<offload::ChannelUse, 2> uses() const { return {read_->use(), write_->use()}; }

 private:
  // One array of one chunk, or a frozen parameter shard, which no chunk has.
  struct Part {
    ArrayId array;
    Range range;
    int extent = nowhere;             // in the store
    std::int64_t slot_offset = 0;     // bytes
    std::int64_t staging_offset = 0;  // bytes, of a gradient beside a GPU
  };
  static constexpr int nowhere = -1;

  bool beside_gpu() const { return inputs_.offload.beside_gpu(); }
  Tier tier() const { return beside_gpu() ? Tier::pinned : Tier::memory; }
  std::vector<ArrayId> arrays_of(const Chunk& chunk) const;
  bool kept_in_file(const Chunk& chunk, const ArrayId& array) const;
  void add_chunk(int number, std::int64_t& staged);
  void add_frozen(const SegmentId& id);
  void add_shards();
  int add_extent(const ArrayId& array, const Range& range);
  std::int64_t buffer_bytes() const;
  DType dtype_of(const ArrayId& array) const { return state_.segment(array).dtype_of(array.kind); }
  std::byte* slot_of(int chunk) const {
    return arena_.data() + this->chunk(chunk).slot * slot_bytes_;
  }
  // Between the chunk's slot and the file, for the parts whose array is wanted.
  template <class Wanted>
  void move_parts(int chunk, offload::Direction direction, const Wanted& wanted);
  void spill_part(const Part& part, bool first, bool last);
  void spill_staged(int flat_unit);
  void add_resident(const SegmentId& id, bool first);
  void visit_part(const Part& part, const Range& range, Access access, const PartVisitor& visitor);
  void write_zeros();

  Device& device_;
  bool fast_init_;
  std::int64_t window_bytes_;  // of a visit
  std::unique_ptr<offload::BlockStore> store_;
  std::map<MemoryCategory, std::int64_t> in_file_;  // bytes
  std::vector<std::vector<Part>> chunk_parts_;      // by chunk
  BySegment<std::vector<Part>> parameter_parts_;    // what the file keeps of the shard
  std::int64_t slot_bytes_ = 0, spill_bytes_ = 0, shard_bytes_ = 0;
  int spill_buffers_;                      // beside a GPU, one for each gradient slot
  BySegment<std::int64_t> shard_offsets_;  // beside a GPU: bytes in the buffer of the unit's shard
  // Slots, buffers of shards, of spills, and the window of visits, in this order.
  Arena arena_;
  std::byte *shards_ = nullptr, *spill_buffer_ = nullptr, *window_ = nullptr;
  std::unique_ptr<offload::BlockStore::Channel> read_, write_, visit_;
  optim::NormSum squares_;
};

}  // namespace zero::detail
