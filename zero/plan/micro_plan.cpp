// Plans of micro steps and evaluation passes: gathers ahead of the scopes that need them,
// reductions behind the last scope that adds to a gradient.
#include <algorithm>
#include <utility>

#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

constexpr int nobody = -1;

struct ComputeStep {
  Op op;
  int unit;
};

// A gather that some compute step needs. Its slot is free once step `freed_after` has run.
struct GatherRequest {
  int flat_unit;
  int freed_after;
};

// Which flat unit lies in each parameter slot.
using SlotContents = std::vector<int>;

// The gathers that the steps need where the slots have these contents at first, which become those
// at the end.
std::vector<GatherRequest> gathers_of(const PlanInputs& inputs,
                                      const std::vector<ComputeStep>& steps,
                                      SlotContents& contents) {
  const Layout& layout = *inputs.layout;
  const auto elements_between = [&](int from_step, int to_step) {
    std::int64_t elements = 0;
    for (int step = from_step + 1; step < to_step; ++step)
      for (const int flat : layout.needs_of_unit[steps[step].unit])
        elements += layout.flat_unit(flat).elements();
    return elements;
  };
  std::vector<GatherRequest> requests;
  std::vector<int> last_use(contents.size(), nobody);
  for (int step = 0; step < std::ssize(steps); ++step)
    for (const int flat : layout.needs_of_unit[steps[step].unit]) {
      const int slot = inputs.parameter_slots.slot_of[flat];
      const bool in_turn = layout.flat_unit(flat).residence == Residence::in_turn;
      const bool too_far = inputs.max_reuse_distance && in_turn && last_use[slot] != nobody &&
                           elements_between(last_use[slot], step) > *inputs.max_reuse_distance;
      if (contents[slot] != flat || too_far) requests.push_back({flat, last_use[slot]});
      contents[slot] = flat;
      last_use[slot] = step;
    }
  return requests;
}

// Adds to a step of the program what other streams do before and after it.
class PlanBuilder {
 public:
  // `reduction`: what becomes of gradients. `last`: of the micro steps of a step.
  PlanBuilder(const PlanInputs& inputs, std::optional<Op> reduction, bool last)
      : inputs_(inputs), reduction_(reduction), last_(last) {}

  StepPlan build(std::string name, const std::vector<ComputeStep>& steps,
                 const std::vector<GatherRequest>& gathers);

 private:
  void emit(Op op, int target) { detail::emit(plan_, inputs_, op, target); }
  void emit_gather(int flat);
  void emit_reductions_after(const ComputeStep& step);

  const PlanInputs& inputs_;
  std::optional<Op> reduction_;
  bool last_;
  StepPlan plan_;
};

// A fetch runs as far ahead of its gather as buffers are free. On a GPU rank it passes through a
// buffer in host memory, unless the shard is kept there.
void PlanBuilder::emit_gather(int flat) {
  const OffloadPlan& offload = inputs_.offload;
  if (offload.fetches(flat)) emit(Op::fetch, flat);
  if (offload.on_host && offload.shard_slot(flat) >= 0) emit(Op::supply, flat);
  emit(Op::gather, flat);
}

// After the last backward scope that adds to a gradient. Beside a GPU gradients stay in its memory
// until the last micro step has added its own; those that go to a file pass through host memory.
void PlanBuilder::emit_reductions_after(const ComputeStep& step) {
  const OffloadPlan& offload = inputs_.offload;
  if (!reduction_ || step.op != Op::backward) return;
  for (const int flat : inputs_.layout->needs_of_unit[step.unit]) {
    const bool last_user = inputs_.layout->flat_unit(flat).users.front() == step.unit;
    if (inputs_.gradient_slots.slot_of[flat] < 0 || !last_user) continue;
    emit(*reduction_, flat);
    if (offload.on_host && last_) emit(Op::download, flat);
    const bool recalled = std::any_of(
        inputs_.chunks.begin(), inputs_.chunks.end(),
        [&](const Chunk& chunk) { return chunk.flat_unit == flat && offload.recalls(chunk); });
    if (offload.on_host ? last_ && recalled : offload.gradients) emit(Op::spill, flat);
  }
}

// Each step is preceded by the gathers that it needs, and then by those that later steps need, as
// far as their slots are free. The last micro step ends with loads of the chunks that are first in
// their slots: nothing writes those before the ranks agree, and the micro step need not wait for
// them.
StepPlan PlanBuilder::build(std::string name, const std::vector<ComputeStep>& steps,
                            const std::vector<GatherRequest>& gathers) {
  plan_.name = std::move(name);
  auto gather = gathers.begin();
  for (int step = 0; step < std::ssize(steps); ++step) {
    for (; gather != gathers.end() && gather->freed_after < step; ++gather)
      emit_gather(gather->flat_unit);
    if (step > 0) emit_reductions_after(steps[step - 1]);
    emit(steps[step].op, steps[step].unit);
  }
  if (!steps.empty()) emit_reductions_after(steps.back());
  for (int c = 0; c < std::ssize(inputs_.chunks) && last_; ++c)
    if (inputs_.chunks[c].ahead) emit(Op::load, c);
  derive_order(plan_);
  return std::move(plan_);
}

// What training or evaluation computes, in order.
std::vector<ComputeStep> compute_steps(const PlanInputs& inputs, bool training) {
  std::vector<ComputeStep> steps;
  for (int u = 0; u < std::ssize(inputs.model->units); ++u)
    if (!training || !inputs.model->units[u].fused) steps.push_back({Op::forward, u});
  if (!training) return steps;
  for (const int unit : backward_order(*inputs.model, *inputs.layout))
    steps.push_back({Op::backward, unit});
  return steps;
}

// Between micro steps, units that take turns in slots stay where they are. Tied ones are resharded,
// and so is everything that is not resharded after forward (FSDP reshards that after backward).
void reshard_after_micro_step(const PlanInputs& inputs, SlotContents& contents) {
  for (int& flat : contents) {
    if (flat == nobody) continue;
    const Residence residence = inputs.layout->flat_unit(flat).residence;
    const bool stays = residence == Residence::persistent ||
                       (residence == Residence::in_turn && inputs.reshard_after_forward);
    if (!stays) flat = nobody;
  }
}

// The pass over all units that comes first, or one that follows another.
struct Pass {
  const char* name;
  bool first, last;
};

StepPlan make_pass(const PlanInputs& inputs, const Pass& pass, bool training,
                   std::optional<Op> reduction) {
  const std::vector<ComputeStep> steps = compute_steps(inputs, training);
  SlotContents contents(inputs.parameter_slots.slots, nobody);
  if (!pass.first) gathers_of(inputs, steps, contents);
  if (!pass.first && training) reshard_after_micro_step(inputs, contents);
  std::vector<GatherRequest> gathers;
  if (inputs.gather_parameters) gathers = gathers_of(inputs, steps, contents);
  return PlanBuilder(inputs, reduction, pass.last).build(pass.name, steps, gathers);
}

}  // namespace

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each) {
  const auto micro_step = [&](const Pass& pass, std::optional<Op> reduction) {
    return make_pass(inputs, pass, true, reduction);
  };
  StepPlans plans;
  std::optional<Op> early;
  if (inputs.accumulate_locally) early = Op::accumulate;
  if (sync_each) early = Op::reduce;
  plans.first = micro_step({"first micro step", true, false}, early);
  plans.middle = micro_step({"middle micro step", false, false}, early);
  plans.last = micro_step({"last micro step", false, true}, Op::reduce);
  plans.only = micro_step({"only micro step", true, true}, Op::reduce);
  plans.update = make_update_plan(inputs);
  plans.evaluation_first =
      make_pass(inputs, {"first evaluation pass", true, false}, false, std::nullopt);
  plans.evaluation_next = make_pass(inputs, {"evaluation pass", false, false}, false, std::nullopt);
  return plans;
}

}  // namespace zero::detail
