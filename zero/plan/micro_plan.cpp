#include "zero/plan/micro_plan.h"

#include <algorithm>
#include <utility>

#include "zero/plan/plan_emitter.h"

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

// Which flat unit lies in each parameter slot.
using SlotContents = std::vector<int>;

class PlanBuilder {
 public:
  PlanBuilder(const PlanInputs& inputs, std::string name, std::vector<ComputeStep> steps)
      : inputs_(inputs), steps_(std::move(steps)), out_(inputs, std::move(name)) {}

  // Returns what lies in the slots at the end.
  SlotContents request_gathers(SlotContents contents);
  void set_position(MicroPosition position) {
    last_ = position == MicroPosition::last || position == MicroPosition::only;
  }
  StepPlan build(std::optional<Op> reduction);

 private:
  const std::vector<int>& needs(int unit) const { return inputs_.layout->needs_of_unit[unit]; }
  int parameter_slot(int flat) const { return inputs_.parameter_slots.slot_of[flat]; }
  int gradient_slot(int flat) const { return inputs_.gradient_slots.slot_of[flat]; }
  std::int64_t elements_between(int from_step, int to_step) const;
  void emit_gather(int flat);
  void emit_fetch(int flat);
  void emit_reduction(int flat, Op reduction);
  void emit_gathers_before(int step);
  void emit_reductions_after(int step, Op reduction);
  void emit_loads_ahead();

  const PlanInputs& inputs_;
  std::vector<ComputeStep> steps_;
  std::vector<GatherRequest> requests_;
  std::size_t next_request_ = 0;
  bool last_ = false;  // of a step
  PlanEmitter out_;
};

// Gradients of the flat unit rest in the file, beside a GPU.
bool recalls_any(const PlanInputs& inputs, int flat) {
  return std::any_of(inputs.chunks.begin(), inputs.chunks.end(), [&](const Chunk& chunk) {
    return chunk.flat_unit == flat && inputs.offload.recalls(chunk);
  });
}

std::int64_t PlanBuilder::elements_between(int from_step, int to_step) const {
  std::int64_t elements = 0;
  for (int step = from_step + 1; step < to_step; ++step)
    for (const int flat : needs(steps_[step].unit))
      elements += inputs_.layout->flat_units[flat].elements();
  return elements;
}

SlotContents PlanBuilder::request_gathers(SlotContents contents) {
  std::vector<int> last_use(contents.size(), nobody);
  for (int step = 0; step < static_cast<int>(steps_.size()); ++step)
    for (const int flat : needs(steps_[step].unit)) {
      const auto slot = static_cast<std::size_t>(parameter_slot(flat));
      const bool in_turn = inputs_.layout->flat_units[flat].residence == Residence::in_turn;
      const bool too_far = inputs_.max_reuse_distance && in_turn && last_use[slot] != nobody &&
                           elements_between(last_use[slot], step) > *inputs_.max_reuse_distance;
      if (contents[slot] != flat || too_far) requests_.push_back({flat, step, last_use[slot]});
      contents[slot] = flat;
      last_use[slot] = step;
    }
  return contents;
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

// How far it runs ahead of its gather is decided by the free buffers. On a GPU rank it passes
// through a buffer in host memory, unless it rests there.
void PlanBuilder::emit_fetch(int flat) {
  const OffloadPlan& offload = inputs_.offload;
  if (offload.fetches(flat) || !offload.on_host) out_.emit(Op::fetch, flat);
  if (offload.on_host) out_.emit(Op::supply, flat);
}

void PlanBuilder::emit_gather(int flat) {
  if (inputs_.offload.shard_slot(flat) >= 0) emit_fetch(flat);
  out_.emit(Op::gather, flat);
}

// Beside a GPU gradients stay in its memory until the last micro step has added its own; what goes
// on to a file passes through host memory.
void PlanBuilder::emit_reduction(int flat, Op reduction) {
  const OffloadPlan& offload = inputs_.offload;
  out_.emit(reduction, flat);
  if (offload.on_host && last_) out_.emit(Op::download, flat);
  const bool to_file = offload.on_host ? last_ && recalls_any(inputs_, flat) : offload.gradients;
  if (to_file) out_.emit(Op::spill, flat);
}

void PlanBuilder::emit_reductions_after(int step, Op reduction) {
  const auto [op, unit] = steps_[step];
  if (op != Op::backward) return;
  for (const int flat : needs(unit)) {
    const int slot = gradient_slot(flat);
    const bool lowest_user = inputs_.layout->flat_units[flat].users.front() == unit;
    if (slot < 0 || !lowest_user) continue;
    emit_reduction(flat, reduction);
  }
}

// States of the chunks that are first in their slots: nobody writes them before the ranks agree.
// They stand behind all fetches, which the micro step waits for.
void PlanBuilder::emit_loads_ahead() {
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c) {
    if (inputs_.chunks[c].ahead) out_.emit(Op::load, static_cast<int>(c));
  }
}

StepPlan PlanBuilder::build(std::optional<Op> reduction) {
  const auto steps = static_cast<int>(steps_.size());
  for (int step = 0; step < steps; ++step) {
    emit_gathers_before(step);
    if (reduction && step > 0) emit_reductions_after(step - 1, *reduction);
    const auto [op, unit] = steps_[step];
    out_.emit(op, unit);
  }
  if (reduction && !steps_.empty()) emit_reductions_after(steps - 1, *reduction);
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
    const Residence residence = inputs.layout->flat_units[flat].residence;
    const bool stays = residence == Residence::persistent ||
                       (residence == Residence::in_turn && inputs.reshard_after_forward);
    if (!stays) flat = nobody;
  }
  return contents;
}

const char* name_of(MicroPosition position) {
  switch (position) {
    case MicroPosition::first:
      return "first micro step";
    case MicroPosition::middle:
      return "middle micro step";
    case MicroPosition::last:
      return "last micro step";
    case MicroPosition::only:
      return "only micro step";
  }
  return "?";
}

}  // namespace

StepPlan make_micro_plan(const PlanInputs& inputs, MicroPosition position,
                         std::optional<Op> reduction) {
  const char* name = name_of(position);
  const bool first = position == MicroPosition::first || position == MicroPosition::only;
  SlotContents start = empty_slots(inputs);
  if (!first && inputs.gather_parameters) {
    PlanBuilder previous(inputs, name, training_steps(inputs));
    start = after_micro_step(inputs, previous.request_gathers(start));
  }
  PlanBuilder builder(inputs, name, training_steps(inputs));
  if (inputs.gather_parameters) builder.request_gathers(start);
  builder.set_position(position);
  return builder.build(reduction);
}

StepPlan make_evaluation_plan(const PlanInputs& inputs, bool first) {
  const char* name = first ? "first evaluation pass" : "evaluation pass";
  SlotContents start = empty_slots(inputs);
  if (!first && inputs.gather_parameters) {
    PlanBuilder previous(inputs, name, evaluation_steps(inputs));
    start = previous.request_gathers(start);
  }
  PlanBuilder builder(inputs, name, evaluation_steps(inputs));
  if (inputs.gather_parameters) builder.request_gathers(start);
  return builder.build(std::nullopt);
}

}  // namespace zero::detail
