// The state of a GPU rank's chunks that rests in host memory and is updated there: gradients, which
// arrive from the GPU, fp32 master weights and optimizer states, and the slots through which new
// parameters return; or the parameter shards themselves, which are fetched to be gathered. What
// crosses to the GPU is page-locked; master weights and states, which do not, where the config says
// so. Owned by the engine.
//
// spill(), upload() and fetch() queue copies on their streams; in_slot() and finish_update() serve
// the chunk's update, on the thread that the device calls; visit() and note_written() between
// steps, on the program's thread.
#pragma once

#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "zero/base/ledger.h"
#include "zero/device/copy_meter.h"
#include "zero/plan/step_plan.h"
#include "zero/runtime_core.h"
#include "zero/state/outer_tier.h"
#include "zero/state/state.h"

namespace zero::detail {

class HostTier final : public OuterTier {
 public:
  // All outlive it.
  HostTier(RuntimeCore& runtime, const PlanInputs& inputs, const ModelState& state,
           const Config& config);

  // Enters its bytes into the ledger's plan; open() takes them, after the state's buffers.
  void plan(Ledger& ledger) const;
  void open(Ledger& ledger);
  void give_back(Ledger& ledger) const;
  std::string describe() const;

  // Reduced gradients of a flat unit's chunks, from the GPU. Those that have no place of their own
  // there add their norm to the word, and leave what stays to its place.
  void spill(int flat_unit, optim::StepWord* word, Stream stream);
  // The chunk's parameters, to the GPU.
  void upload(int chunk, Stream stream);
  // A flat unit's parameter shard, to the buffer from which it is gathered.
  void fetch(int flat_unit, Stream stream);
  // Before a delayed update: the slot gets what the update changes there.
  void begin_update(int chunk);
  // Makes the chunk's slot what its parameters are to be, after an update or without one.
  void finish_update(int chunk, bool updated);
  // Of a delayed update's parameters: slot -> where they rest.
  void publish_parameters(int chunk);
  // What a speculative update goes by.
  struct Guess {
    std::int64_t step = 0;  // 0: there is none
    float gradient_multiplier = 0;
    bool operator==(const Guess&) const = default;
  };
  // Copies the chunk's state to its second place, to be updated there.
  void begin_aside(int chunk, const Guess& guess);
  // Makes the second place the first if its guess is this; true then. The guess is gone.
  bool adopt(int chunk, const Guess& agreed);
  // While no update runs.
  const Speculation& speculation() const { return speculation_; }
  // Of an update, which must not throw; the first is thrown by check() ever after.
  void fail(std::exception_ptr failure) noexcept;
  void check() const;
  // By CopyDirection: gradients, and parameters. While nothing else calls the tier.
  std::array<CopyTotal, copy_directions> copied() { return copies_.totals(); }

  std::int64_t first_outside(const ArrayId& array) const override;
  void visit(const ArrayId& array, std::int64_t begin, std::int64_t end, Access access,
             const PartVisitor& visitor) override;
  std::byte* in_slot(int chunk, ArrayKind kind, int state = 0) const override;
  std::byte* second_place(int chunk, ArrayKind kind, int state = 0) const override;
  void note_written(const ArrayId& array, std::int64_t begin,
                    std::span<const std::byte> bytes) override;

 private:
  // A chunk's arrays, each from its first element on. Where the parameter is its own master, the
  // one here is a copy of what the GPU has, or null where the parameter rests here.
  struct Home {
    std::byte* gradient = nullptr;
    std::byte* master = nullptr;
    std::vector<std::byte*> states;
  };

  const Chunk& chunk(int number) const { return inputs_.chunks[static_cast<std::size_t>(number)]; }
  const SegmentBuffers& buffers(const Chunk& chunk) const {
    return state_.segment(chunk.flat_unit, chunk.segment);
  }
  std::byte* slot_of(const Chunk& chunk) const { return slots_ + chunk.slot * slot_bytes_; }
  bool holds_parameters(int flat_unit) const { return inputs_.offload.shard_slot(flat_unit) >= 0; }
  // Of this rank's slice.
  std::byte* parameters_of(int flat_unit, int segment) const {
    return parameters_[static_cast<std::size_t>(flat_unit)][static_cast<std::size_t>(segment)];
  }
  bool is_parameter(const ArrayId& array) const;
  void keep_resident(int flat_unit, Stream stream);
  // Where an update leaves the parameters.
  std::byte* parameters_of(const Chunk& chunk) const;
  bool speculative(const Chunk& own) const { return own.aside && inputs_.offload.speculative(); }
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
  bool pins_all_;
  CopyMeter copies_;
  std::map<MemoryCategory, std::int64_t> bytes_;
  std::int64_t slot_bytes_ = 0, second_bytes_ = 0;
  Arena crossing_, resting_;
  std::byte* slots_ = nullptr;
  std::vector<Home> homes_, second_homes_;  // by chunk
  std::vector<Guess> guesses_;              // by chunk
  Speculation speculation_;
  std::vector<std::vector<std::byte*>> parameters_;  // by flat unit and segment
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace zero::detail
