#include "zero/plan/update_plan.h"

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

namespace {

// Chunks on their way through the slots of offload: read, updated, written; several slots in turn
// do all three at once.
class SlotPasses {
 public:
  // Both outlive it.
  SlotPasses(const PlanInputs& inputs, PlanEmitter& out) : inputs_(inputs), out_(out) {}

  // The chunk into its slot; `waits` beside the slot's own.
  void load(int chunk, std::vector<EventId> waits);
  // Between the two comes what steps the chunk in its slot; here is what it waits for beside its
  // own reasons.
  std::vector<EventId> waits_of_update(int chunk) const;
  std::vector<EventId> signals_of_update(int chunk) const;
  void store(int chunk, std::vector<EventId> signals);

 private:
  const PlanInputs& inputs_;
  PlanEmitter& out_;
  int previous_ = -1;  // slot of the chunk before
};

void SlotPasses::load(int number, std::vector<EventId> waits) {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  waits.push_back({EventKind::state_free, chunk.slot});
  if (chunk.on_host) waits.push_back({EventKind::state_sent, chunk.slot});
  if (!inputs_.offload.pipeline_read && previous_ >= 0) {
    waits.push_back({EventKind::state_stepped, previous_});
    if (!inputs_.offload.pipeline_write) waits.push_back({EventKind::state_free, previous_});
  }
  out_.emit(Op::load, number, waits, {{EventKind::state_ready, chunk.slot}});
}

std::vector<EventId> SlotPasses::waits_of_update(int number) const {
  const int slot = inputs_.chunks[static_cast<std::size_t>(number)].slot;
  if (slot < 0) return {};
  std::vector<EventId> waits = {{EventKind::state_ready, slot}};
  if (!inputs_.offload.pipeline_write && previous_ >= 0)
    waits.push_back({EventKind::state_free, previous_});
  return waits;
}

std::vector<EventId> SlotPasses::signals_of_update(int number) const {
  const int slot = inputs_.chunks[static_cast<std::size_t>(number)].slot;
  if (slot < 0) return {};
  return {{EventKind::state_stepped, slot}};
}

void SlotPasses::store(int number, std::vector<EventId> signals) {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  if (chunk.slot < 0) return;
  signals.push_back({EventKind::state_free, chunk.slot});
  out_.emit(Op::store, number, {{EventKind::state_stepped, chunk.slot}}, std::move(signals));
  previous_ = chunk.slot;
}

// Gradients are not read before the ranks agree, as they may still be edited.
class UpdateBuilder {
 public:
  explicit UpdateBuilder(const PlanInputs& inputs)
      : inputs_(inputs), out_("update"), passes_(inputs, out_) {}

  // In forward order, so that the first units are ready for the next forward while others update.
  StepPlan updates() {
    agree();
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) emit_chunk(static_cast<int>(c));
    return out_.take();
  }

 private:
  const Chunk& chunk(int number) const { return inputs_.chunks[static_cast<std::size_t>(number)]; }
  int whole_slot(int flat) const {
    return inputs_.parameter_slots.slot_of[static_cast<std::size_t>(flat)];
  }

  void agree() {
    std::vector<EventId> reduced;
    for (int slot = 0; slot < inputs_.gradient_slots.slots; ++slot)
      reduced.push_back({EventKind::gradient_free, slot});
    out_.emit(Op::agree, 0, reduced, {{EventKind::agreed, 0}});
    if (!inputs_.tensor_norms) return;
    std::vector<EventId> gathered;
    for (int slot = 0; slot < inputs_.parameter_slots.slots; ++slot)
      gathered.push_back({EventKind::parameter_ready, slot});
    out_.emit(Op::measure, 0, gathered, {});
  }

  void emit_load(int number) {
    const Chunk& own = chunk(number);
    // Gradients of a GPU rank cannot be edited, but may not have come to the file when it agrees.
    const EventId gradient =
        own.on_host ? EventId{EventKind::spilled, own.flat_unit} : EventId{EventKind::agreed, 0};
    if (!own.ahead)
      passes_.load(number,
                   inputs_.offload.recalls(own) ? std::vector{gradient} : std::vector<EventId>());
    else if (inputs_.offload.recalls(own))
      out_.emit(Op::recall, number, {gradient}, {{EventKind::state_ready, own.slot}});
  }

  void emit_chunk(int number) {
    const Chunk& own = chunk(number);
    if (own.on_host)
      emit_host_chunk(number);
    else
      emit_update(number);
    if (inputs_.gather_after_update && own.last_of_unit) emit_gather(own.flat_unit);
  }

  void emit_update(int number) {
    const Chunk& own = chunk(number);
    if (own.slot >= 0) emit_load(number);
    std::vector<EventId> waits = passes_.waits_of_update(number);
    std::vector<EventId> signals = passes_.signals_of_update(number);
    waits.push_back({EventKind::parameter_ready, whole_slot(own.flat_unit)});
    // The rest of a unit may be updated in host memory.
    if (own.last_of_unit || chunk(number + 1).on_host)
      signals.push_back({EventKind::updated, own.flat_unit});
    out_.emit(Op::update, number, waits, std::move(signals));
    std::vector<EventId> saved;
    if (own.last_of_unit) saved.push_back({EventKind::saved, own.flat_unit});
    passes_.store(number, std::move(saved));
  }

  void emit_gather(int flat) {
    std::vector<EventId> waits = {{EventKind::parameter_free, whole_slot(flat)},
                                  {EventKind::updated, flat}};
    if (inputs_.offload.on_host) waits.push_back({EventKind::uploaded, flat});
    out_.emit(Op::gather, flat, waits, {{EventKind::parameter_ready, whole_slot(flat)}});
  }

  // Beside a GPU: through a slot where a part of it does not rest in host memory. Parameters of the
  // GPU are written where others gather them from, beside elements that the GPU updates.
  void emit_host_chunk(int number) {
    const Chunk& own = chunk(number);
    const OffloadPlan& offload = inputs_.offload;
    std::vector<EventId> waits, signals;
    if (offload.passes_file(own)) {
      emit_load(number);
      waits = passes_.waits_of_update(number);
    } else if (own.slot >= 0) {
      if (offload.in_file) waits.push_back({EventKind::state_free, own.slot});
      waits.push_back({EventKind::state_sent, own.slot});
    }
    waits.push_back({EventKind::agreed, 0});
    signals = passes_.signals_of_update(number);
    if (own.last_of_unit) signals.push_back({EventKind::stepped, own.flat_unit});
    out_.emit(Op::update_on_host, number, waits, std::move(signals));
    if (offload.uploads(own)) emit_upload(number, {{EventKind::updated, own.flat_unit}});
    if (!offload.passes_file(own)) return;
    std::vector<EventId> saved;
    if (own.last_of_unit) saved.push_back({EventKind::saved, own.flat_unit});
    passes_.store(number, std::move(saved));
  }

  void emit_upload(int number, std::vector<EventId> waits) {
    const Chunk& own = chunk(number);
    waits.push_back({EventKind::state_stepped, own.slot});
    waits.push_back({EventKind::parameter_ready, whole_slot(own.flat_unit)});
    std::vector<EventId> signals = {{EventKind::state_sent, own.slot}};
    if (own.last_of_unit) signals.push_back({EventKind::uploaded, own.flat_unit});
    out_.emit(Op::upload, number, waits, std::move(signals));
  }

  const PlanInputs& inputs_;
  PlanEmitter out_;
  SlotPasses passes_;
};

}  // namespace

StepPlan make_update_plan(const PlanInputs& inputs) {
  return UpdateBuilder(inputs).updates();
}

}  // namespace zero::detail
