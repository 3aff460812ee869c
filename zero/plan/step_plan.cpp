#include "zero/plan/step_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace zero::detail {

namespace {

constexpr int nobody = -1;

struct ComputeStep {
  Op op;
  int unit;
};

// A gather that some compute step needs; its slot is free once step `freed_after` has run.
struct GatherRequest {
  int flat_unit;
  int at_step;
  int freed_after;
};

// Whether the chunk's gradient is read from the file.
bool recalls(const PlanInputs& inputs, const Chunk& chunk) {
  return inputs.offload.gradients && chunk.state_in_file;
}

// Which flat unit lies in each parameter slot.
using SlotContents = std::vector<int>;

// A plan that grows by instructions, counting the signals of each event.
class Emitter {
 public:
  explicit Emitter(std::string name) { plan_.name = std::move(name); }
  void emit(Op op, int target, const std::vector<EventId>& waits, std::vector<EventId> signals);
  StepPlan take() { return std::move(plan_); }

 private:
  std::map<EventId, int> signalled_;
  StepPlan plan_;
};

class PlanBuilder {
 public:
  PlanBuilder(const PlanInputs& inputs, std::string name, std::vector<ComputeStep> steps)
      : inputs_(inputs), steps_(std::move(steps)), out_(std::move(name)) {}

  // Returns what lies in the slots at the end.
  SlotContents request_gathers(SlotContents contents);
  // Of the last micro step of a step, in which states are read ahead.
  void set_last(bool last) { last_ = last; }
  StepPlan build(std::optional<Op> reduction);

 private:
  const std::vector<int>& needs(int unit) const {
    return inputs_.layout->needs_of_unit[static_cast<std::size_t>(unit)];
  }
  int parameter_slot(int flat) const {
    return inputs_.parameter_slots.slot_of[static_cast<std::size_t>(flat)];
  }
  int gradient_slot(int flat) const {
    return inputs_.gradient_slots.slot_of[static_cast<std::size_t>(flat)];
  }
  std::int64_t elements_between(int from_step, int to_step) const;
  void emit_compute(int step);
  void emit_gather(int flat);
  void emit_reduction(int flat, Op reduction);
  void emit_gathers_before(int step);
  void emit_reductions_after(int step, Op reduction);
  void emit_loads_ahead();

  const PlanInputs& inputs_;
  std::vector<ComputeStep> steps_;
  std::vector<GatherRequest> requests_;
  std::size_t next_request_ = 0;
  bool last_ = false;
  Emitter out_;
};

std::int64_t PlanBuilder::elements_between(int from_step, int to_step) const {
  std::int64_t elements = 0;
  for (int step = from_step + 1; step < to_step; ++step)
    for (const int flat : needs(steps_[static_cast<std::size_t>(step)].unit))
      elements += inputs_.layout->flat_units[static_cast<std::size_t>(flat)].elements();
  return elements;
}

SlotContents PlanBuilder::request_gathers(SlotContents contents) {
  std::vector<int> last_use(contents.size(), nobody);
  for (int step = 0; step < static_cast<int>(steps_.size()); ++step)
    for (const int flat : needs(steps_[static_cast<std::size_t>(step)].unit)) {
      const auto slot = static_cast<std::size_t>(parameter_slot(flat));
      const bool in_turn = inputs_.layout->flat_units[static_cast<std::size_t>(flat)].residence ==
                           Residence::in_turn;
      const bool too_far = inputs_.max_reuse_distance && in_turn && last_use[slot] != nobody &&
                           elements_between(last_use[slot], step) > *inputs_.max_reuse_distance;
      if (contents[slot] != flat || too_far) requests_.push_back({flat, step, last_use[slot]});
      contents[slot] = flat;
      last_use[slot] = step;
    }
  return contents;
}

void Emitter::emit(Op op, int target, const std::vector<EventId>& waits,
                   std::vector<EventId> signals) {
  Instruction instruction{op, target, {}, std::move(signals)};
  for (const EventId& event : waits) {
    const auto found = signalled_.find(event);
    instruction.waits.push_back({event, found == signalled_.end() ? 0 : found->second});
  }
  for (const EventId& event : instruction.signals) ++signalled_[event];
  plan_.instructions.push_back(std::move(instruction));
}

void PlanBuilder::emit_compute(int step) {
  const auto [op, unit] = steps_[static_cast<std::size_t>(step)];
  std::vector<EventId> waits, signals;
  for (const int flat : needs(unit)) {
    waits.push_back({EventKind::parameter_ready, parameter_slot(flat)});
    // What no gather spreads is used where it is uploaded.
    if (inputs_.offload.on_host && !inputs_.gather_parameters && !inputs_.gather_after_update)
      waits.push_back({EventKind::uploaded, flat});
    signals.push_back({EventKind::parameter_free, parameter_slot(flat)});
    if (op != Op::backward || gradient_slot(flat) < 0) continue;
    waits.push_back({EventKind::gradient_free, gradient_slot(flat)});
    signals.push_back({EventKind::gradient_ready, gradient_slot(flat)});
  }
  out_.emit(op, unit, waits, std::move(signals));
}

// What the step needs, then what later steps need as far as slots are free.
void PlanBuilder::emit_gathers_before(int step) {
  while (next_request_ < requests_.size()) {
    const GatherRequest& request = requests_[next_request_];
    if (request.freed_after >= step) return;
    emit_gather(request.flat_unit);
    ++next_request_;
  }
}

// How far a fetch runs ahead of its gather is decided by the free buffers.
void PlanBuilder::emit_gather(int flat) {
  std::vector<EventId> waits = {{EventKind::parameter_free, parameter_slot(flat)},
                                {EventKind::updated, flat}};
  if (inputs_.offload.on_host) waits.push_back({EventKind::uploaded, flat});
  std::vector<EventId> signals = {{EventKind::parameter_ready, parameter_slot(flat)}};
  if (const int buffer = inputs_.offload.shard_slot(flat); buffer >= 0) {
    out_.emit(Op::fetch, flat, {{EventKind::shard_free, buffer}, {EventKind::saved, flat}},
              {{EventKind::shard_ready, buffer}});
    waits.push_back({EventKind::shard_ready, buffer});
    signals.push_back({EventKind::shard_free, buffer});
  }
  out_.emit(Op::gather, flat, waits, std::move(signals));
}

void PlanBuilder::emit_reduction(int flat, Op reduction) {
  const int slot = gradient_slot(flat);
  const EventId ready{EventKind::gradient_ready, slot}, free{EventKind::gradient_free, slot};
  const EventId reduced{EventKind::gradient_reduced, slot};
  out_.emit(reduction, flat, {ready}, {inputs_.offload.spills() ? reduced : free});
  const Op next = inputs_.offload.on_host && !last_ ? Op::keep : Op::spill;
  if (inputs_.offload.spills()) out_.emit(next, flat, {reduced}, {free});
}

void PlanBuilder::emit_reductions_after(int step, Op reduction) {
  const auto [op, unit] = steps_[static_cast<std::size_t>(step)];
  if (op != Op::backward) return;
  for (const int flat : needs(unit)) {
    const int slot = gradient_slot(flat);
    const bool lowest_user =
        inputs_.layout->flat_units[static_cast<std::size_t>(flat)].users.front() == unit;
    if (slot < 0 || !lowest_user) continue;
    emit_reduction(flat, reduction);
  }
}

// States of the chunks that are first in their slots: nobody writes them before the ranks agree.
// They stand behind all fetches, which the micro step waits for.
void PlanBuilder::emit_loads_ahead() {
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) {
    const Chunk& chunk = inputs_.chunks[c];
    if (!chunk.ahead) continue;
    std::vector<EventId> signals;
    if (!recalls(inputs_, chunk)) signals.push_back({EventKind::state_ready, chunk.slot});
    out_.emit(Op::load, static_cast<int>(c), {{EventKind::state_free, chunk.slot}},
              std::move(signals));
  }
}

StepPlan PlanBuilder::build(std::optional<Op> reduction) {
  for (int step = 0; step < static_cast<int>(steps_.size()); ++step) {
    emit_gathers_before(step);
    if (reduction && step > 0) emit_reductions_after(step - 1, *reduction);
    emit_compute(step);
  }
  if (reduction && !steps_.empty())
    emit_reductions_after(static_cast<int>(steps_.size()) - 1, *reduction);
  if (last_) emit_loads_ahead();
  return out_.take();
}

std::vector<ComputeStep> training_steps(const PlanInputs& inputs) {
  std::vector<ComputeStep> steps;
  for (std::size_t u = 0; u < inputs.model->units.size(); ++u)
    if (!inputs.model->units[u].fused) steps.push_back({Op::forward, static_cast<int>(u)});
  for (const int unit : backward_order(*inputs.model, *inputs.layout))
    steps.push_back({Op::backward, unit});
  return steps;
}

std::vector<ComputeStep> evaluation_steps(const PlanInputs& inputs) {
  std::vector<ComputeStep> steps;
  for (std::size_t u = 0; u < inputs.model->units.size(); ++u)
    steps.push_back({Op::forward, static_cast<int>(u)});
  return steps;
}

SlotContents empty_slots(const PlanInputs& inputs) {
  return SlotContents(static_cast<std::size_t>(inputs.parameter_slots.slots), nobody);
}

// Between micro steps units taken in turn stay where they are; tied ones are let go, as is
// everything that is not resharded after forward (FSDP reshards it after backward).
SlotContents after_micro_step(const PlanInputs& inputs, SlotContents contents) {
  for (int& flat : contents) {
    if (flat == nobody) continue;
    const Residence residence = inputs.layout->flat_units[static_cast<std::size_t>(flat)].residence;
    const bool stays = residence == Residence::persistent ||
                       (residence == Residence::in_turn && inputs.reshard_after_forward);
    if (!stays) flat = nobody;
  }
  return contents;
}

// In the last micro step of a step, states are read ahead.
StepPlan make_micro_plan(const PlanInputs& inputs, const char* name, bool first,
                         std::optional<Op> reduction, bool last) {
  SlotContents start = empty_slots(inputs);
  if (!first && inputs.gather_parameters) {
    PlanBuilder previous(inputs, name, training_steps(inputs));
    start = after_micro_step(inputs, previous.request_gathers(start));
  }
  PlanBuilder builder(inputs, name, training_steps(inputs));
  if (inputs.gather_parameters) builder.request_gathers(start);
  builder.set_last(last);
  return builder.build(reduction);
}

StepPlan make_evaluation_plan(const PlanInputs& inputs, const char* name, bool first) {
  SlotContents start = empty_slots(inputs);
  if (!first && inputs.gather_parameters) {
    PlanBuilder previous(inputs, name, evaluation_steps(inputs));
    start = previous.request_gathers(start);
  }
  PlanBuilder builder(inputs, name, evaluation_steps(inputs));
  if (inputs.gather_parameters) builder.request_gathers(start);
  return builder.build(std::nullopt);
}

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
  Emitter out_;
  int previous_ = -1;  // slot of the chunk before
};

}  // namespace

const char* name_of(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::agree:
      return "agree";
    case Op::measure:
      return "measure";
    case Op::update:
      return "update";
    case Op::gather:
      return "gather";
    case Op::reduce:
      return "reduce";
    case Op::accumulate:
      return "accumulate";
    case Op::fetch:
      return "fetch";
    case Op::load:
      return "load";
    case Op::recall:
      return "recall";
    case Op::store:
      return "store";
    case Op::spill:
      return "spill";
    case Op::keep:
      return "keep";
    case Op::update_on_host:
      return "update on the host";
    case Op::upload:
      return "upload";
  }
  return "?";
}

PlanStream stream_of(Op op) {
  switch (op) {
    case Op::gather:
    case Op::reduce:
    case Op::accumulate:
      return PlanStream::communication;
    case Op::fetch:
    case Op::load:
    case Op::recall:
    case Op::upload:
      return PlanStream::inbound;
    case Op::store:
    case Op::spill:
    case Op::keep:
      return PlanStream::outbound;
    case Op::update_on_host:
      return PlanStream::host;
    default:
      return PlanStream::compute;
  }
}

std::vector<int> backward_order(const Model& model, const Layout& layout) {
  int lowest = static_cast<int>(model.units.size());
  for (const FlatUnit& flat : layout.flat_units)
    if (flat.trainable_elements() > 0 && !flat.users.empty())
      lowest = std::min(lowest, flat.users.front());
  std::vector<int> order;
  for (int unit = static_cast<int>(model.units.size()) - 1; unit >= lowest; --unit)
    order.push_back(unit);
  return order;
}

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each) {
  StepPlans plans;
  std::optional<Op> early;
  if (inputs.accumulate_locally) early = Op::accumulate;
  if (sync_each) early = Op::reduce;
  plans.first = make_micro_plan(inputs, "first micro step", true, early, false);
  plans.middle = make_micro_plan(inputs, "middle micro step", false, early, false);
  plans.last = make_micro_plan(inputs, "last micro step", false, Op::reduce, true);
  plans.only = make_micro_plan(inputs, "only micro step", true, Op::reduce, true);
  plans.update = UpdateBuilder(inputs).build();
  plans.evaluation_first = make_evaluation_plan(inputs, "first evaluation pass", true);
  plans.evaluation_next = make_evaluation_plan(inputs, "evaluation pass", false);
  return plans;
}

PlanTraffic traffic_of(const StepPlan& plan, const Layout& layout) {
  PlanTraffic traffic;
  for (const Instruction& instruction : plan.instructions) {
    const FlatUnit* flat = stream_of(instruction.op) == PlanStream::communication
                               ? &layout.flat_units[static_cast<std::size_t>(instruction.target)]
                               : nullptr;
    if (instruction.op == Op::reduce) traffic.reduced += flat->trainable_elements();
    if (instruction.op == Op::gather) traffic.gathered += flat->elements();
  }
  return traffic;
}

}  // namespace zero::detail
