#include "zero/plan/update_plan.h"

#include "zero/plan/slot_passes.h"

namespace zero::detail {

namespace {

// Gradients are not read before the ranks agree, as they may still be edited.
class UpdateBuilder {
 public:
  UpdateBuilder(const PlanInputs& inputs, std::string name)
      : inputs_(inputs), out_(std::move(name)), passes_(inputs, out_) {}

  // In forward order, so that the first units are ready for the next forward while others update.
  StepPlan updates() {
    agree();
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) emit_chunk(static_cast<int>(c));
    return out_.take();
  }

  // What the last updates left aside; updates of a GPU's state in host memory begin here.
  StepPlan publications() {
    agree();
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) emit_publication(static_cast<int>(c));
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
      if (inputs_.chunks[c].on_host) emit_delayed_update(static_cast<int>(c));
    return out_.take();
  }

  // Of updates that have run by then, beside a GPU, or run here.
  StepPlan drain() {
    AsideUpdates aside(inputs_, out_);
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
      if (!inputs_.chunks[c].on_host) aside.add(static_cast<int>(c));
    while (!aside.empty()) aside.run_next();
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) emit_publication(static_cast<int>(c));
    return out_.take();
  }

 private:
  const Chunk& chunk(int number) const { return inputs_.chunks[static_cast<std::size_t>(number)]; }
  bool parameters_rest_outside(const Chunk& own) const {
    return inputs_.offload.shard_slot(own.flat_unit) >= 0;
  }
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

  // A chunk that was updated aside is read again only where that does not stand.
  void emit_load(int number) {
    const Chunk& own = chunk(number);
    const bool later = inputs_.offload.recalls(own) || own.aside;
    // Gradients of a GPU rank cannot be edited, but may not have come to the file when it agrees.
    const EventId gradient =
        own.on_host ? EventId{EventKind::spilled, own.flat_unit} : EventId{EventKind::agreed, 0};
    if (!own.ahead)
      passes_.load(number, later ? std::vector{gradient} : std::vector<EventId>());
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
    passes_.store(number, Op::store, std::move(saved));
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
    passes_.store(number, Op::store, std::move(saved));
  }

  void emit_upload(int number, std::vector<EventId> waits) {
    const Chunk& own = chunk(number);
    waits.push_back({EventKind::state_stepped, own.slot});
    waits.push_back({EventKind::parameter_ready, whole_slot(own.flat_unit)});
    std::vector<EventId> signals = {{EventKind::state_sent, own.slot}};
    if (own.last_of_unit) signals.push_back({EventKind::uploaded, own.flat_unit});
    out_.emit(Op::upload, number, waits, std::move(signals));
  }

  void emit_publication(int number) {
    const Chunk& own = chunk(number);
    if (own.on_host && !parameters_rest_outside(own)) {
      emit_upload(number, {{EventKind::agreed, 0}});
    } else if (own.on_host) {
      std::vector<EventId> done;
      if (own.last_of_unit) done.push_back({EventKind::stepped, own.flat_unit});
      out_.emit(Op::publish_on_host, number, {{EventKind::agreed, 0}}, std::move(done));
    } else {
      std::vector<EventId> waits = {{EventKind::parameter_ready, whole_slot(own.flat_unit)}};
      std::vector<EventId> signals;
      if (own.slot >= 0) waits.push_back({EventKind::state_free, own.slot});
      if (own.last_of_unit) signals.push_back({EventKind::updated, own.flat_unit});
      out_.emit(Op::publish, number, waits, std::move(signals));
    }
    if (inputs_.gather_after_update && own.last_of_unit) emit_gather(own.flat_unit);
  }

  // It waits in its slot for the next step, which publishes it.
  void emit_delayed_update(int number) {
    const Chunk& own = chunk(number);
    std::vector<EventId> waits = {{EventKind::agreed, 0}};
    if (!parameters_rest_outside(own)) waits.push_back({EventKind::state_sent, own.slot});
    std::vector<EventId> signals = {{EventKind::state_stepped, own.slot}};
    if (own.last_of_unit) signals.push_back({EventKind::gradient_used, own.flat_unit});
    out_.emit(Op::update_on_host, number, waits, std::move(signals));
  }

  const PlanInputs& inputs_;
  PlanEmitter out_;
  SlotPasses passes_;
};

}  // namespace

StepPlan make_update_plan(const PlanInputs& inputs) {
  UpdateBuilder builder(inputs, "update");
  return inputs.offload.delayed() ? builder.publications() : builder.updates();
}

StepPlan make_drain_plan(const PlanInputs& inputs) {
  return UpdateBuilder(inputs, "drain").drain();
}

}  // namespace zero::detail
