// Keeps offloaded state of a rank in a file, or on GPU ranks in host memory, and moves it to and
// from the memory of computation. State that a GPU rank keeps in the file passes through host
// memory too. Owns the buffers in between: slots for updates of chunks, source buffers for gathers
// of parameter shards, and staging. Memory that the GPU copies is page-locked; master weights and
// states that the host updates are page-locked if the config says so. Belongs to the engine.
//
// move(), spill() and download() run on the streams of the plan's instructions, or queue copies
// there. Transfers from the file run on the read stream; transfers to the file, with reads of the
// gradients that are added to, run on the write stream. round_parameters() and, for chunks that the
// host updates on GPU ranks, in_slot() run on the thread of the host's stream. All other calls are
// for the program's thread; visit() and note_written() only while the streams are idle or, between
// agreement and update, work on other arrays.
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
#include "zero/plan/offload_moves.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/copy_meter.h"
#include "zero/state/memory_requests.h"
#include "zero/state/state.h"
#include "zero/state/state_array.h"

namespace zero::detail {

// An array that is kept outside of the engine's arena, or passes through a slot.
struct OffloadArray : ArrayRow {
  std::int64_t staging_offset = 0;  // bytes, for a gradient copied from a GPU to the file
  int number_in_file = -1;          // of the block store; -1: not in the file
  std::byte* memory = nullptr;      // the address if kept in host memory
};

class OffloadTier {
 public:
  // All arguments except the config must outlive this object.
  OffloadTier(RuntimeCore& runtime, const EnginePlan& plan, const ModelState& state,
              const Config& config);
  OffloadTier(const OffloadTier&) = delete;

  // Adds memory and file to the ledger's plan; open() takes both, once the state has memory.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  std::string describe() const;
  std::vector<std::string> notices() const {
    return store_ ? store_->notices() : std::vector<std::string>();
  }
  bool to_host() const { return inputs_.offload.to_host(); }

  // Moves the arrays of an instruction (zero/plan/offload_moves.h). The stream is that of copies.
  void move(Op op, int target, Stream stream = {});
  // On a CPU rank: adds reduced gradients to those in the file, and writes the sums. `first` and
  // `last` refer to the reductions of a step.
  void spill(int flat_unit, bool first, bool last);
  // On a GPU rank: moves the reduced gradients of chunks that the host updates to host memory.
  // Gradients that have only a slot on the GPU are added to the norm, and those of chunks that stay
  // are moved out of the slot.
  void download(int flat_unit, optim::NormSum* sum, Stream stream);
  // Returns the squares of the gradients that last spills have written since the previous call.
  optim::NormSum take_squares() { return std::exchange(squares_, {}); }
  // Puts a chunk's parameters into the source of upload or store: the new values after the update
  // on the host, or the present values if the step was skipped.
  void round_parameters(int chunk, bool updated);

  // Elements of the array below this position are kept in the arena, the rest here.
  std::int64_t first_outside(const ArrayId& array) const;
  // Like StateStore::visit, for elements that are kept here.
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor);
  // Address of the array's first element while the chunk is updated; null if in the arena.
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const;
  // Call after elements that are kept in the arena have been written, from `begin` on.
  void note_written(const ArrayId& array, std::int64_t begin, std::span<const std::byte> bytes);

  // Use of the file by the read and the write stream. Any thread.
  std::array<offload::ChannelUse, 2> file_uses() const;
  // Totals by CopyDirection. Not thread-safe: no other tier call may be in progress.
  std::array<CopyTotal, copy_directions> copied() { return copies_.totals(); }

 private:
  const Layout& layout() const { return *inputs_.layout; }
  const Chunk& chunk(int number) const { return inputs_.chunks[number]; }
  bool is_gpu_slot(int slot) const { return slot >= inputs_.offload.host_slots; }
  bool keeps_shard(const SegmentId& id) const {
    return inputs_.offload.shard_slot(id.flat_unit) >= 0;
  }

  void add_chunk(const std::vector<ArrayRow>& rows, std::int64_t& staged);
  int add_to_store(const OffloadArray& array);
  void place_shards();
  void request_memory();
  void write_zeros();

  const OffloadArray* find(int chunk, ArrayKind kind, int state = 0) const;
  std::byte* address(const OffloadArray& array, Location location) const;
  std::byte* buffer_of(const OffloadArray& array) const;
  std::byte* place_of_update(const OffloadArray& array) const {
    return address(array, array.passes_slot() ? Location::slot : Location::home);
  }
  // Calls each(array) for the arrays that the instruction moves.
  template <class Each>
  void for_moved(Op op, int target, const Each& each) const;
  void round_in_slot(int chunk, Stream stream);
  void add_to_file(const OffloadArray& array, bool first, bool last);
  void visit_in_file(const OffloadArray& array, const Range& range, Access access,
                     const PartVisitor& visitor);

  RuntimeCore& runtime_;
  const EnginePlan& plan_;
  const PlanInputs& inputs_;
  const ModelState& state_;
  bool fast_init_, pins_all_;
  std::vector<std::vector<OffloadArray>> chunk_arrays_;  // per chunk
  BySegment<std::vector<OffloadArray>> shard_arrays_;    // parameters that leave the arena
  BySegment<std::int64_t> shard_offsets_;                // bytes in the buffer of the unit's shard
  std::int64_t slot_bytes_ = 0, gpu_slot_bytes_ = 0, shard_bytes_ = 0, staging_bytes_ = 0,
               window_bytes_ = 0;
  // Memory that the GPU copies, other host memory, GPU memory, and the file.
  MemoryRequests copied_requests_, kept_requests_, device_requests_, file_requests_{Tier::file};
  Arena copied_arena_, kept_arena_, device_arena_;
  // The window is for visits.
  std::byte *slots_ = nullptr, *gpu_slots_ = nullptr, *shards_ = nullptr, *staging_ = nullptr,
            *window_ = nullptr;
  std::unique_ptr<offload::BlockStore> store_;  // null if nothing is kept in a file
  std::unique_ptr<offload::BlockStore::Channel> read_, write_, visit_;
  CopyMeter copies_;
  optim::NormSum squares_;
};

}  // namespace zero::detail
