// Plans of micro steps and evaluation passes: gathers ahead of the scopes that need them,
// reductions after the last scope that adds to a gradient.
#include <algorithm>
#include <map>
#include <utility>

#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

constexpr int nobody = -1;

// A gather that some scope needs. The slot is free once step `freed_after` has run. `again`: the
// unit has been gathered before since the last update.
struct GatherRequest {
  int flat_unit;
  int freed_after;
  bool again;
};

// The flat unit in each parameter slot, and the flat units gathered since the last update.
struct SlotContents {
  SlotContents(const PlanInputs& inputs, bool gathered)
      : in_slot(inputs.parameter_slots.slots, nobody),
        gathered(inputs.layout->flat_units.size(), gathered) {}

  std::vector<int> in_slot;
  std::vector<bool> gathered;  // per flat unit
};

// Returns the gathers that the steps need, given the initial contents of the slots, and updates
// these to the final contents. Parameters that are kept whole need no gathers.
std::vector<GatherRequest> gathers_of(const PlanInputs& inputs, const std::vector<ScopeStep>& steps,
                                      SlotContents& contents) {
  if (!inputs.policy->parameters_sharded) return {};
  const Layout& layout = *inputs.layout;
  const auto elements_between = [&](int from_step, int to_step) {
    std::int64_t elements = 0;
    for (int step = from_step + 1; step < to_step; ++step)
      for (const int flat : layout.needs_of_unit[steps[step].unit])
        elements += layout.flat_unit(flat).elements();
    return elements;
  };
  std::vector<GatherRequest> requests;
  std::vector<int> last_use(contents.in_slot.size(), nobody);
  for (int step = 0; step < std::ssize(steps); ++step)
    for (const int flat : layout.needs_of_unit[steps[step].unit]) {
      const int slot = inputs.parameter_slots.slot_of[flat];
      const bool in_turn = layout.flat_unit(flat).residence == Residence::in_turn;
      const bool too_far = inputs.max_reuse_distance && in_turn && last_use[slot] != nobody &&
                           elements_between(last_use[slot], step) > *inputs.max_reuse_distance;
      if (contents.in_slot[slot] != flat || too_far) {
        requests.push_back({flat, last_use[slot], contents.gathered[flat]});
        contents.gathered[flat] = true;
      }
      contents.in_slot[slot] = flat;
      last_use[slot] = std::max(last_use[slot], steps[step].end);
    }
  return requests;
}

// The transfers between stages that come before a step of the program, by the number of the step.
using Crossings = std::multimap<int, HalfPass>;

// The scopes of a schedule, one half after another, and the transfers.
struct Listed {
  std::vector<ScopeStep> steps;
  Crossings crossings;
};

Listed listed(const PlanInputs& inputs, const std::vector<HalfPass>& schedule,
              bool training = true) {
  Listed scopes;
  const std::vector<ScopeStep> forward = forward_steps(inputs, training);
  const std::vector<ScopeStep> backward =
      training ? backward_steps(inputs) : std::vector<ScopeStep>();
  for (const HalfPass& half : schedule) {
    const auto begin = static_cast<int>(scopes.steps.size());
    if (target_of(half.op) == Target::boundary) {
      scopes.crossings.emplace(begin, half);
      continue;
    }
    const std::vector<ScopeStep>& all = half.op == Op::forward ? forward : backward;
    const UnitRun run = inputs.model->run(half.run);
    const auto is_own = [&](const ScopeStep& step) { return run.has(step.unit); };
    const auto first = std::ranges::find_if(all, is_own);
    for (auto own = first; own != all.end() && is_own(*own); ++own) {
      ScopeStep& step = scopes.steps.emplace_back(*own);
      step.end += begin - static_cast<int>(first - all.begin());
      step.micro_batch = half.micro_batch;
    }
  }
  return scopes;
}

// Adds the instructions of other streams before and after each step of the program.
class PlanBuilder {
 public:
  // `early`: the operation on gradients in all micro steps except the last. `last`: for the last
  // micro step of a step, or several that include the last.
  PlanBuilder(const PlanInputs& inputs, std::optional<Op> early, bool last)
      : inputs_(inputs), early_(early), last_(last) {}

  // Emits each step after the gathers that the step needs, and gathers for later steps as soon as
  // slots are free. `crossings`: transfers between stages, before each step and at the end.
  StepPlan build(std::string name, const std::vector<ScopeStep>& steps,
                 const std::vector<GatherRequest>& gathers, const Crossings& crossings = {}) {
    plan_.name = std::move(name);
    for (const ScopeStep& step : steps)
      micro_batches_ = std::max(micro_batches_, step.micro_batch + 1);
    auto gather = gathers.begin();
    for (int step = 0; step < std::ssize(steps); ++step) {
      for (; gather != gathers.end() && gather->freed_after < step; ++gather)
        emit_gather(gather->flat_unit, gather->again);
      if (step > 0) emit_reductions_after(steps, step - 1);
      emit_crossings(crossings, step);
      emit_scope(steps, step);
    }
    if (!steps.empty()) emit_reductions_after(steps, static_cast<int>(steps.size()) - 1);
    emit_crossings(crossings, static_cast<int>(steps.size()));
    for (int f = 0; f < std::ssize(inputs_.layout->flat_units) && !crossings.empty(); ++f)
      if (inputs_.is_in_stages(f)) emit(Op::add_uses, f);
    emit_loads_ahead();
    return finished();
  }

  StepPlan build_gathers(const std::vector<int>& flat_units) {
    plan_.name = "gathers of a scope";
    for (const int flat : flat_units) emit_gather(flat, false);
    return finished();
  }

  StepPlan build_reductions(const std::vector<int>& flat_units) {
    plan_.name = "reductions of a scope";
    for (const int flat : flat_units)
      if (early_) emit_reduction(*early_, flat);
    return finished();
  }

  StepPlan build_late_reductions() {
    plan_.name = "late reductions";
    for (int f = 0; f < std::ssize(inputs_.layout->flat_units); ++f)
      if (inputs_.gradient_slots.slot_of[f] >= 0) emit_reduction(Op::reduce_late, f);
    emit_loads_ahead();
    return finished();
  }

 private:
  void emit(Op op, int target) {
    plan_.instructions.push_back(instruction_of(inputs_, op, target, micro_batch_));
    plan_.instructions.back().micro_batches = micro_batches_;
  }
  // Whether the current micro batch is the last of a step.
  bool final() const { return last_ && micro_batch_ + 1 == micro_batches_; }

  // A fetch runs as far ahead of the gather as there are free buffers. On a GPU rank a shard passes
  // through a buffer in host memory, unless kept there.
  void emit_gather(int flat, bool again) {
    if (again && inputs_.has_second_copy(flat)) return emit(Op::regather, flat);
    const OffloadPlan& offload = inputs_.offload;
    if (offload.fetches(flat)) emit(Op::fetch, flat);
    if (offload.parameters_on_host && offload.shard_slot(flat) >= 0) emit(Op::supply, flat);
    emit(Op::gather, flat);
  }

  void emit_crossings(const Crossings& crossings, int step) {
    const auto [begin, end] = crossings.equal_range(step);
    for (auto crossing = begin; crossing != end; ++crossing) {
      micro_batch_ = crossing->second.micro_batch;
      emit(crossing->second.op, crossing->second.run);
    }
  }

  void emit_scope(const std::vector<ScopeStep>& steps, int step) {
    const auto [op, unit, end, micro_batch] = steps[step];
    scopes_.push_back(plan_.instructions.size());
    micro_batch_ = micro_batch;
    emit(op, unit);
    if (op != Op::backward) return;
    for (const int flat : inputs_.layout->needs_of_unit[unit]) {
      const bool later =
          std::any_of(steps.begin() + step + 1, steps.end(), [&](const ScopeStep& s) {
            return s.op == Op::backward && s.micro_batch == micro_batch_ &&
                   inputs_.layout->needs(s.unit, flat);
          });
      if (inputs_.gradient_slots.slot_of[flat] >= 0 && !later)
        plan_.instructions.back().completes.push_back(flat);
    }
  }

  // Emits reductions for the scopes that end with this step, innermost first.
  void emit_reductions_after(const std::vector<ScopeStep>& steps, int step) {
    for (int s = step; s >= 0; --s) {
      if (steps[s].end != step) continue;
      micro_batch_ = steps[s].micro_batch;
      const std::optional<Op> reduction = final() ? Op::reduce : early_;
      const std::vector<int> completed = plan_.instructions[scopes_[s]].completes;
      for (const int flat : completed)
        if (reduction) emit_reduction(*reduction, flat);
    }
  }

  // On GPU ranks, gradients stay in GPU memory until the last micro step has added to the sum;
  // gradients for a file pass through host memory. On CPU ranks, gradients for a file are written
  // in each micro step.
  void emit_reduction(Op op, int flat) {
    const OffloadPlan& offload = inputs_.offload;
    emit(op, flat);
    if (!offload.updates_on_host) {
      if (offload.gradients && op != Op::reduce_late) emit(Op::spill, flat);
      return;
    }
    if (!final()) return;
    emit(Op::download, flat);
    if (std::ranges::any_of(inputs_.chunks, [&](const Chunk& chunk) {
          return chunk.flat_unit == flat && offload.recalls(chunk);
        }))
      emit(Op::spill, flat);
  }

  // Loads the chunks that are first in a slot: no instruction writes those before the ranks agree,
  // and the micro step need not wait for the loads.
  void emit_loads_ahead() {
    for (int c = 0; c < std::ssize(inputs_.chunks) && last_; ++c)
      if (inputs_.chunks[c].ahead) emit(Op::load, c);
  }

  StepPlan finished() {
    derive_order(plan_);
    return std::move(plan_);
  }

  const PlanInputs& inputs_;
  std::optional<Op> early_;
  bool last_;
  int micro_batch_ = 0, micro_batches_ = 1;
  StepPlan plan_;
  std::vector<std::size_t> scopes_;  // instruction of each step
};

// Units that share slots in turn stay gathered between micro steps. Tied units are resharded, and
// so are all units that are not resharded after forward (FSDP reshards those after backward).
void reshard_after_micro_step(const PlanInputs& inputs, SlotContents& contents) {
  for (int& flat : contents.in_slot) {
    if (flat == nobody) continue;
    const Residence residence = inputs.layout->flat_unit(flat).residence;
    const bool stays = residence == Residence::persistent ||
                       (residence == Residence::in_turn && inputs.reshard_after_forward);
    if (!stays) flat = nobody;
  }
}

// A pass over all units: the first, or a later pass.
struct PassKind {
  const char* name;
  bool first, last;
  bool training = true;
  std::optional<Op> early = {};
};

// Only evaluations have transfers here: those of training are in a list of all micro batches.
std::vector<HalfPass> halves_of(const PassKind& pass, const Model& model) {
  std::vector<HalfPass> halves;
  const int runs = std::max(1, static_cast<int>(model.runs.size()));
  for (int run = 0; run < runs; ++run) {
    const RunLinks links = pass.training ? RunLinks() : model.run(run).links;
    if (links.before) halves.push_back({Op::receive, 0, run});
    halves.push_back({Op::forward, 0, run});
    if (links.after) halves.push_back({Op::send, 0, run});
  }
  for (int run = runs - 1; run >= 0 && pass.training; --run)
    halves.push_back({Op::backward, 0, run});
  return halves;
}

StepPlan make_pass(const PlanInputs& inputs, const PassKind& pass) {
  const auto [steps, crossings] = listed(inputs, halves_of(pass, *inputs.model), pass.training);
  // An evaluation may follow an update, or come at any time.
  SlotContents contents(inputs, pass.training && !pass.first);
  if (!pass.first) gathers_of(inputs, steps, contents);
  if (!pass.training) contents.gathered.assign(contents.gathered.size(), false);
  if (!pass.first && pass.training) reshard_after_micro_step(inputs, contents);
  const std::vector<GatherRequest> gathers = gathers_of(inputs, steps, contents);
  StepPlan plan =
      PlanBuilder(inputs, pass.early, pass.last).build(pass.name, steps, gathers, crossings);
  if (pass.training)
    plan.forward_scopes = static_cast<int>(forward_steps(inputs, pass.training).size());
  return plan;
}

// The reduction of all micro steps except the last.
std::optional<Op> early_reduction(const PlanInputs& inputs, bool sync_each) {
  if (sync_each) return Op::reduce;
  return inputs.policy->accumulates_locally() ? std::optional(Op::accumulate) : std::nullopt;
}

// Returns the instructions of a plan except the program's own for the micro batches from `first`
// on.
StepPlan without_scopes(const StepPlan& all, std::string name, int first = 0) {
  StepPlan plan{std::move(name), {}};
  for (const Instruction& instruction : all.instructions)
    if (instruction.stream != PlanStream::compute || instruction.micro_batch < first)
      plan.instructions.push_back(instruction);
  derive_order(plan);
  return plan;
}

}  // namespace

StepPlan make_gather_plan(const PlanInputs& inputs, const std::vector<int>& flat_units) {
  return PlanBuilder(inputs, std::nullopt, false).build_gathers(flat_units);
}

StepPlan make_reduction_plan(const PlanInputs& inputs, bool sync_each,
                             const std::vector<int>& flat_units) {
  return PlanBuilder(inputs, early_reduction(inputs, sync_each), false)
      .build_reductions(flat_units);
}

HalfPlans make_half_plans(const PlanInputs& inputs, const std::vector<int>& used, bool sync_each,
                          bool last) {
  PlanInputs shown = inputs;
  shown.order = used;
  const std::vector<ScopeStep> forward = forward_steps(shown, true);
  const std::vector<ScopeStep> backward = backward_steps(inputs);
  SlotContents contents(inputs, false);
  const std::vector<GatherRequest> before = gathers_of(inputs, forward, contents);
  const std::vector<GatherRequest> after = gathers_of(inputs, backward, contents);
  const std::optional<Op> early = early_reduction(inputs, sync_each);
  return {PlanBuilder(inputs, std::nullopt, false).build("first forward", forward, before),
          PlanBuilder(inputs, early, last).build("first backward", backward, after),
          used.size() == inputs.order.size()};
}

StepPlan make_task_plan(const PlanInputs& inputs, bool sync_each,
                        const std::vector<HalfPass>& schedule) {
  const auto [steps, crossings] = listed(inputs, schedule);
  SlotContents contents(inputs, false);
  const std::vector<GatherRequest> gathers = gathers_of(inputs, steps, contents);
  StepPlan plan = PlanBuilder(inputs, early_reduction(inputs, sync_each), true)
                      .build("all micro batches", steps, gathers, crossings);
  const auto backward = std::ranges::find(steps, Op::backward, &ScopeStep::op);
  plan.forward_scopes = static_cast<int>(backward - steps.begin());
  return plan;
}

StepPlan with_own_scopes(const StepPlan& tasks, int own) {
  StepPlan plan = without_scopes(tasks, tasks.name, own);
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.op == Op::backward) break;
    plan.forward_scopes += instruction.op == Op::forward ? 1 : 0;
  }
  return plan;
}

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each) {
  StepPlans plans;
  const std::optional<Op> early = early_reduction(inputs, sync_each);
  plans.first = make_pass(inputs, {"first micro step", true, false, true, early});
  plans.middle = make_pass(inputs, {"middle micro step", false, false, true, early});
  plans.last = make_pass(inputs, {"last micro step", false, true, true, early});
  plans.only = make_pass(inputs, {"only micro step", true, true, true, early});
  if (inputs.policy->rank_independent()) {
    plans.without_batch = without_scopes(plans.last, "last micro step without a batch");
    plans.only_without_batch = without_scopes(plans.only, "only micro step without a batch");
  }
  // Gathers everything, since the program may have changed what the slots contain.
  if (inputs.repeats_batches)
    plans.repeated = make_pass(inputs, {"repeated micro step", true, false});
  plans.late_reductions = PlanBuilder(inputs, std::nullopt, true).build_late_reductions();
  plans.update = make_update_plan(inputs);
  plans.evaluation_first = make_pass(inputs, {"first evaluation pass", true, false, false});
  plans.evaluation_next = make_pass(inputs, {"evaluation pass", false, false, false});
  return plans;
}

}  // namespace zero::detail
