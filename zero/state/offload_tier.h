// Keeps what a rank offloads in a file, or beside a GPU in host memory, and moves it between there
// and the memory in which the rank computes. What a GPU rank keeps in the file passes through host
// memory too. Owns the buffers on these ways: slots in which chunks are updated, buffers from which
// parameter shards are gathered, and staging. What the GPU copies is page-locked; master weights
// and states that the host updates are page-locked if the config says so. Owned by the engine.
//
// move(), spill() and download() run on the streams of the plan's instructions, or queue copies on
// them. Transfers from the file are those of the stream of reads, and transfers to the file, with
// reads of the gradients that are added to, those of the stream of writes. round_parameters() and,
// for chunks that the host updates beside a GPU, in_slot() run on the thread of the host's stream.
// All else runs on the program's thread, visit() and note_written() while the streams are idle or,
// between agreement and update, work on other arrays.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "offload/block_store.h"
#include "optim/gradient_norm.h"
#include "zero/base/arena.h"
#include "zero/base/ledger.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/copy_meter.h"
#include "zero/state/memory_requests.h"
#include "zero/state/offload_parts.h"

namespace zero::detail {

class OffloadTier {
 public:
  // All but the config outlive it.
  OffloadTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
              const Config& config);
  OffloadTier(const OffloadTier&) = delete;

  // Enters memory and file into the ledger's plan; open() takes them, once the state has its
  // memory.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  std::string describe() const;
  std::vector<std::string> notices() const {
    return store_ ? store_->notices() : std::vector<std::string>();
  }
  bool beside_gpu() const { return inputs_.offload.beside_gpu(); }

  // What an instruction of the plan moves (offload_parts.h). The stream is that of copies.
  void move(Op op, int target, Stream stream = {});
  // On a CPU rank: adds what was reduced to the gradients that rest in the file, and writes them.
  // `first` and `last`: of the reductions of a step.
  void spill(int flat_unit, bool first, bool last);
  // Beside a GPU: moves the reduced gradients of chunks that the host updates there. Gradients that
  // have only a slot on the GPU are added to the norm, and those of chunks that stay are moved out
  // of the slot.
  void download(int flat_unit, optim::NormSum* sum, Stream stream);
  // The squares of the gradients that last spills have written since the last call.
  optim::NormSum take_squares() { return std::exchange(squares_, {}); }
  // Puts a chunk's parameters where upload or store takes them: after its update on the host the
  // new ones, or where the step was skipped the present ones.
  void round_parameters(int chunk, bool updated);

  // Of the array's elements, those below this position are kept in the arena, the others here.
  std::int64_t first_outside(const ArrayId& array) const;
  // As StateStore::visit, of elements that are kept here.
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor);
  // Where the array's first element lies while the chunk is updated; null where it lies in the
  // arena.
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const;
  // Is called after elements that are kept in the arena have been written, from `begin` on.
  void note_written(const ArrayId& array, std::int64_t begin, std::span<const std::byte> bytes);

  // Of the streams of reads and of writes. Any thread may ask.
  std::array<offload::ChannelUse, 2> file_uses() const;
  // By CopyDirection. Called while nothing else calls the tier.
  std::array<CopyTotal, copy_directions> copied() { return copies_.totals(); }

 private:
  const Layout& layout() const { return *inputs_.layout; }
  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  bool keeps_shard(const SegmentId& id) const {
    return inputs_.offload.shard_slot(id.flat_unit) >= 0;
  }

  void make_parts(int number, std::int64_t& staged);
  void make_shard(const SegmentId& id);
  int add_extent(const OffloadPart& part);
  void place_shards();
  void request_memory();
  void write_zeros();

  const OffloadPart* find(int chunk, ArrayKind kind, int state = 0) const;
  std::byte* address(const OffloadPart& part, Location location) const;
  std::byte* buffer_of(const OffloadPart& part) const;
  std::byte* place_of_update(const OffloadPart& part) const {
    return address(part, part.passes_slot() ? Location::slot : Location::home);
  }
  // Calls each(part) for what the instruction moves.
  template <class Each>
  void for_moved(Op op, int target, const Each& each) const;
  void round_in_slot(int chunk, Stream stream);
  void add_to_file(const OffloadPart& part, bool first, bool last);
  void visit_in_file(const OffloadPart& part, const Range& range, Access access,
                     const PartVisitor& visitor);

  RuntimeCore& runtime_;
  const PlanInputs& inputs_;
  const ModelState& state_;
  bool fast_init_, pins_all_;
  std::vector<std::vector<OffloadPart>> chunk_parts_;  // by chunk
  BySegment<std::vector<OffloadPart>> shard_parts_;    // of parameters that leave the arena
  BySegment<std::int64_t> shard_offsets_;              // bytes in the buffer of the unit's shard
  std::int64_t slot_bytes_ = 0, shard_bytes_ = 0, staging_bytes_ = 0, window_bytes_ = 0;
  // Of what the GPU copies, of the rest, of the GPU's, and of the file.
  MemoryRequests copied_requests_, kept_requests_, device_requests_, file_requests_{Tier::file};
  Arena copied_arena_, kept_arena_, device_arena_;
  // The window is that of visits.
  std::byte *slots_ = nullptr, *shards_ = nullptr, *staging_ = nullptr, *window_ = nullptr;
  std::unique_ptr<offload::BlockStore> store_;  // null where nothing is kept in a file
  std::unique_ptr<offload::BlockStore::Channel> read_, write_, visit_;
  CopyMeter copies_;
  optim::NormSum squares_;
};

}  // namespace zero::detail
