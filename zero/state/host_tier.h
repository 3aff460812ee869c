// Keeps what a GPU rank offloads to host memory: the gradients, fp32 master weights and optimizer
// states of chunks that are updated there, the slots from which their new parameters are uploaded,
// or the parameter shards themselves; or the master weights and states of chunks that the GPU
// updates, and the slots on the GPU through which these pass. What is offloaded further to a file
// passes through the memory of a FileTier, which this class asks for it. Memory that is copied to
// or from the GPU is page-locked; master weights and states, which are not, are page-locked if the
// config says so. Owned by the engine.
//
// download(), upload(), supply(), load() and store() queue copies on their streams. in_slot() and
// finish_update() serve the update of a chunk, on the thread of the host's stream; visit() and
// note_written() run between steps, on the program's thread.
#pragma once

#include <string>
#include <vector>

#include "zero/base/ledger.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/copy_meter.h"
#include "zero/state/file_tier.h"
#include "zero/state/outer_tier.h"

namespace zero::detail {

class HostTier final : public OuterTier {
 public:
  // All but the config outlive it; `file` is null where nothing is kept in one.
  HostTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
           const Config& config, FileTier* file);

  // Enters its bytes into the ledger's plan; open() takes them, once the state has its memory.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  void give_back(Ledger& ledger) const;
  std::string describe() const;

  // Copies the reduced gradients of a flat unit's chunks from the GPU. Gradients that have only a
  // slot there are added to the norm, and those of chunks that stay are moved out of the
  // slot.
  void download(int flat_unit, optim::NormSum* sum, Stream stream);
  // Copies the chunk's new parameters to the GPU.
  void upload(int chunk, Stream stream);
  // Copies a flat unit's parameter shard to the buffer from which it is gathered.
  void supply(int flat_unit, Stream stream);
  // A streamed chunk's state, and its parameters where they are kept here: to its slot on the GPU,
  // and from there.
  void load(int chunk, Stream stream);
  void store(int chunk, Stream stream);
  // Fills the chunk's slot with its new parameters, or with the present ones if `updated` is false.
  void finish_update(int chunk, bool updated);
  // By CopyDirection. Called while nothing else calls the tier.
  std::array<CopyTotal, copy_directions> copied() { return copies_.totals(); }

  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor) override;
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const override;
  void note_written(const ArrayId& array, std::int64_t begin,
                    std::span<const std::byte> bytes) override;

 private:
  // The arrays of a chunk that are kept here. Where the parameter is its own master, `master` is a
  // copy of the GPU's parameter, or null where the parameter is offloaded.
  struct ChunkArrays {
    std::byte* gradient = nullptr;
    std::byte* master = nullptr;
    std::vector<std::byte*> states;
  };

  // An array of a streamed chunk, in its slot.
  struct Part {
    ArrayKind kind{};
    int state = 0;
    std::int64_t offset = 0;  // bytes
  };

  const SegmentBuffers& buffers(int number) const { return state_.segment(chunk(number)); }
  // Where the new parameters of a chunk with a slot lie.
  std::byte* slot_of(int number) const {
    if (file_ != nullptr) return file_->in_slot(number, ArrayKind::parameter);
    return slots_ + chunk(number).slot * slot_bytes_;
  }
  bool holds_parameters(int flat_unit) const {
    return inputs_.offload.shard_slot(flat_unit) >= 0 && !inputs_.offload.fetches(flat_unit);
  }
  bool in_file(const Chunk& chunk, ArrayKind kind) const;
  void request_arrays(int number);
  void add_parts(int number);
  std::byte* device_slot_of(int number) const {
    return device_slots_ + chunk(number).slot * device_slot_bytes_;
  }
  // Where the array's first element is kept.
  std::byte* home_of(int number, ArrayKind kind, int state = 0) const;
  // Where an update leaves the parameters.
  std::byte* parameters_of(int number) const;

  RuntimeCore& runtime_;
  FileTier* file_;
  bool pins_all_;
  CopyMeter copies_;
  std::int64_t slot_bytes_ = 0, device_slot_bytes_ = 0;
  MemoryRequests copied_requests_, kept_requests_;  // of what the GPU copies, and of the rest
  MemoryRequests device_requests_;
  Arena copied_arena_, kept_arena_, device_arena_;
  std::byte *slots_ = nullptr, *device_slots_ = nullptr;
  std::vector<ChunkArrays> arrays_;       // by chunk
  std::vector<std::vector<Part>> parts_;  // by chunk
  BySegment<std::byte*> parameters_;      // this rank's shard, where it is kept here
};

}  // namespace zero::detail
