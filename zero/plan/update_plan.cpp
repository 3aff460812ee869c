#include "zero/plan/update_plan.h"

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

namespace {

// Read a chunk into its slot, step it, write it back; three slots in turn do all at once. Gradients
// are not read before the ranks agree, as they may still be edited.
class UpdateBuilder {
 public:
  explicit UpdateBuilder(const PlanInputs& inputs) : inputs_(inputs), out_("update") {}

  StepPlan build() {
    std::vector<EventId> reduced;
    for (int slot = 0; slot < inputs_.gradient_slots.slots; ++slot)
      reduced.push_back({EventKind::gradient_free, slot});
    out_.emit(Op::agree, 0, reduced, {{EventKind::agreed, 0}});
    if (inputs_.tensor_norms) {
      std::vector<EventId> gathered;
      for (int slot = 0; slot < inputs_.parameter_slots.slots; ++slot)
        gathered.push_back({EventKind::parameter_ready, slot});
      out_.emit(Op::measure, 0, gathered, {});
    }
    // In forward order, so that the first units are ready for the next forward while others update.
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) emit_chunk(static_cast<int>(c));
    return out_.take();
  }

 private:
  void emit_load(int number) {
    const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
    const int slot = chunk.slot;
    if (chunk.ahead) {
      if (recalls(inputs_, chunk))
        out_.emit(Op::recall, number, {{EventKind::agreed, 0}}, {{EventKind::state_ready, slot}});
      return;
    }
    std::vector<EventId> waits = {{EventKind::state_free, slot}};
    if (recalls(inputs_, chunk)) waits.push_back({EventKind::agreed, 0});
    if (!inputs_.offload.pipeline_read && previous_ >= 0) {
      waits.push_back({EventKind::state_stepped, previous_});
      if (!inputs_.offload.pipeline_write) waits.push_back({EventKind::state_free, previous_});
    }
    out_.emit(Op::load, number, waits, {{EventKind::state_ready, slot}});
  }

  void emit_chunk(int number) {
    const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
    if (chunk.on_host)
      emit_host_chunk(number);
    else
      emit_update(number);
    if (inputs_.gather_after_update && chunk.last_of_unit) emit_gather(chunk.flat_unit);
  }

  void emit_update(int number) {
    const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
    const int flat = chunk.flat_unit, slot = chunk.slot;
    const int whole = inputs_.parameter_slots.slot_of[static_cast<std::size_t>(flat)];
    std::vector<EventId> waits = {{EventKind::parameter_ready, whole}}, signals;
    if (slot >= 0) {
      emit_load(number);
      waits.push_back({EventKind::state_ready, slot});
      if (!inputs_.offload.pipeline_write && previous_ >= 0)
        waits.push_back({EventKind::state_free, previous_});
      signals.push_back({EventKind::state_stepped, slot});
    }
    // The rest of a unit may be updated in host memory.
    if (chunk.last_of_unit || inputs_.chunks[static_cast<std::size_t>(number) + 1].on_host)
      signals.push_back({EventKind::updated, flat});
    out_.emit(Op::update, number, waits, std::move(signals));
    if (slot >= 0) emit_store(number);
  }

  void emit_gather(int flat) {
    const int whole = inputs_.parameter_slots.slot_of[static_cast<std::size_t>(flat)];
    std::vector<EventId> waits = {{EventKind::parameter_free, whole}, {EventKind::updated, flat}};
    if (inputs_.offload.on_host) waits.push_back({EventKind::uploaded, flat});
    out_.emit(Op::gather, flat, waits, {{EventKind::parameter_ready, whole}});
  }

  // Parameters that rest in host memory too are fetched from there. Else the shard is written where
  // others gather it from, beside elements that the GPU updates.
  void emit_host_chunk(int number) {
    const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
    const int whole = inputs_.parameter_slots.slot_of[static_cast<std::size_t>(chunk.flat_unit)];
    if (chunk.slot < 0) {
      std::vector<EventId> done;
      if (chunk.last_of_unit) done.push_back({EventKind::saved, chunk.flat_unit});
      return out_.emit(Op::update_on_host, number, {{EventKind::agreed, 0}}, std::move(done));
    }
    out_.emit(Op::update_on_host, number,
              {{EventKind::agreed, 0}, {EventKind::state_free, chunk.slot}},
              {{EventKind::state_stepped, chunk.slot}});
    std::vector<EventId> signals = {{EventKind::state_free, chunk.slot}};
    if (chunk.last_of_unit) signals.push_back({EventKind::uploaded, chunk.flat_unit});
    out_.emit(Op::upload, number,
              {{EventKind::state_stepped, chunk.slot},
               {EventKind::parameter_ready, whole},
               {EventKind::updated, chunk.flat_unit}},
              std::move(signals));
  }

  void emit_store(int number) {
    const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
    std::vector<EventId> signals = {{EventKind::state_free, chunk.slot}};
    if (chunk.last_of_unit) signals.push_back({EventKind::saved, chunk.flat_unit});
    out_.emit(Op::store, number, {{EventKind::state_stepped, chunk.slot}}, std::move(signals));
    previous_ = chunk.slot;
  }

  const PlanInputs& inputs_;
  PlanEmitter out_;
  int previous_ = -1;  // slot of the chunk before
};

}  // namespace

StepPlan make_update_plan(const PlanInputs& inputs) {
  return UpdateBuilder(inputs).build();
}

}  // namespace zero::detail
