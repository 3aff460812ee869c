#include "zero/pass/accumulation.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "zero/state/array_exchange.h"

namespace zero::detail {

const StepPlan& Accumulation::plan_of_micro_step() const {
  const StepPlans& plans = train_.plan.steps;
  if (train_.micro_step == 0 || count_.slots_changed)
    return train_.last_micro_step ? plans.only : plans.first;
  return train_.last_micro_step ? plans.last : plans.middle;
}

void Accumulation::check_order(int index) const {
  const int done = ended_micro_steps();
  const int own = own_micro_steps();
  if (done == own)
    throw UsageError(
        "Engine::micro_steps() was begun again before Engine::step(): call step() once, after " +
        (own == 1 ? "the micro step" : "all " + std::to_string(own) + " micro steps"));
  if (index != done)
    throw UsageError("micro step " + std::to_string(index) + " was begun where micro step " +
                     std::to_string(done) + " of " + std::to_string(own) +
                     " comes next; run every element of Engine::micro_steps(), in order");
}

void Accumulation::begin_micro_step(int index, std::int64_t loop) {
  if (index >= own_micro_steps()) return start_repeated(index, loop);
  const bool open = guard_.phase() == Phase::micro_step && train_.micro_step == index;
  if (!open || count_.loop != loop) start_micro_step(index, loop, index + 1 == all_micro_steps());
}

int Accumulation::begin_micro_step(bool last) {
  const int index = begun_micro_steps();
  const bool counted = train_.plan.rank_independent();
  if (counted && index == own_micro_steps()) {
    if (!more_repeats())
      throw UsageError("Engine::begin_micro_step() was called after all " + std::to_string(index) +
                       " micro batches that this rank has in a step with "
                       "zero_core.rank_independent; call Engine::step()");
    const int next = index + passes_.recomputation.repeats();
    start_repeated(next, MicroStepCount::no_loop);
    return next;
  }
  start_micro_step(index, MicroStepCount::no_loop,
                   counted ? index + 1 == all_micro_steps() : last || !train_.plan.accumulates);
  return index;
}

const std::vector<const Instruction*>& Accumulation::tasks() {
  if (tasks_.empty())
    for (const Instruction& instruction : train_.plan.steps.tasks.instructions)
      if (target_of(instruction.op) == Target::unit) tasks_.push_back(&instruction);
  return tasks_;
}

void Accumulation::begin_tasks() {
  if (tasks().empty())
    throw UsageError("Engine::tasks() needs what each unit passes on: declare UnitSpec::output()");
  if (guard_.phase() == Phase::micro_step && count_.all_at_once) end_open_micro_step();
  if (count_.done > 0 || guard_.phase() == Phase::micro_step)
    throw UsageError(
        "Engine::tasks() was begun among the micro steps of a step: call Engine::step() once, "
        "after all tasks");
  start_micro_step(0, MicroStepCount::no_loop, true, true);
}

void Accumulation::start_micro_step(int index, std::int64_t loop, bool last, bool all_at_once) {
  end_open_micro_step();
  guard_.require(Call::micro_step);
  count_.all_at_once = all_at_once;
  if (!all_at_once) train_.refuse_in_stages("Engine::micro_steps()", "loop over Engine::tasks()");
  train_.require_values("");
  const bool counted = loop != MicroStepCount::no_loop;
  const bool after_last = index > 0 && train_.last_micro_step && !counted;
  if (after_last && (!train_.model.any_micro_steps || !train_.plan.completes_each()))
    throw UsageError(all_micro_steps() == 1
                         ? "Engine::begin_micro_step() was called again before Engine::step(), "
                           "and gradient_accumulation_steps is 1; set it to 2 or more"
                         : "Engine::begin_micro_step() was called after the last micro step of a "
                           "step; call Engine::step()");
  if (counted) check_order(index);
  check_replicas(train_);
  if (index == 0) {
    losses_.begin_step();
    passes_.recomputation.begin_step();
    count_.free = 0;
    count_.more_after_last = false;
    clock_.start(train_.step + 1);
  }
  count_.more_after_last |= after_last;
  if (index == 0 || train_.plan.empties_gradients()) passes_.gradients.forget();
  count_.loop = loop;
  train_.micro_step = index;
  train_.last_micro_step = last;
  losses_.begin_micro_step();
  forward_.clear();
  guard_.enter<Call::micro_step, Phase::micro_step>();
  if (passes_.order.waits())
    pass_.agree({.shows_order = true});
  else
    pass_.follow(count_.all_at_once ? train_.plan.steps.tasks : plan_of_micro_step());
  count_.slots_changed = false;
  passes_.recomputation.begin_own(index);
}

bool Accumulation::more_repeats() {
  if (!passes_.recomputation.due() || begun_micro_steps() != own_micro_steps()) return false;
  end_open_micro_step();
  guard_.require(Call::more_micro_steps);
  return guard_.or_poison([&] { return passes_.recomputation.goes_on(); });
}

// The gradients go nowhere, so the micro steps and the losses of the step are unchanged.
void Accumulation::start_repeated(int index, std::int64_t loop) {
  const int next = own_micro_steps() + passes_.recomputation.repeats();
  if (passes_.recomputation.repeating() && index == next - 1) return;
  if (index != next || !more_repeats()) check_order(index);
  passes_.gradients.forget();
  count_.loop = loop;
  forward_.clear();
  guard_.enter<Call::micro_step, Phase::micro_step>();
  pass_.follow(train_.plan.steps.repeated);
  passes_.recomputation.begin_repeated();
}

void Accumulation::admit(Op op, int unit) {
  walker_.resume();
  if (op == Op::backward) end_first_forward();
  if (train_.model.any_order && pass_.excludes(op, unit)) leave_plan(op, unit);
  if (op == Op::forward) forward_.push_back(unit);
}

// Backward follows a plan once the order is known.
void Accumulation::end_first_forward() {
  if (!pass_.shows_order()) return;
  pass_.finish();
  const StepPlan& rest = passes_.order.learn(pass_.order(), train_.last_micro_step);
  count_.slots_changed = !passes_.order.used_all();
  pass_.follow(rest);
}

// Serves other ranks to the end of the plan, with zeros as this rank's remaining gradients; these
// follow in an additional micro step.
void Accumulation::leave_plan(Op op, int unit) {
  // The rest would be added after other micro batches.
  if (train_.plan.rank_independent())
    throw UsageError(
        std::string(name_of(op)) + " of unit " + train_.model.units[unit].name +
        " came in another order than in the first pass, or once more; with "
        "zero_core.rank_independent each micro batch uses the units in the order of the "
        "first one (it may skip some): keep to one order, or leave the key out");
  if (train_.last_micro_step && !train_.plan.completes_each())
    throw UsageError(
        "a pass leaves the order of earlier ones in the micro step that was said to be the last, "
        "whose sums are on their way: do not announce it, or set zero_core.gradient_sync to "
        "\"each\"");
  count_.more_after_last |= train_.last_micro_step;
  const bool in_forward = pass_.in_forward();
  const std::vector<OpenScope> open = pass_.leave_plan();
  if (agrees_on_leaving()) someone_leaves(true);
  begin_agreed();
  if (in_forward)
    for (const int shown : forward_) pass_.note(shown);
  for (const OpenScope& scope : open) pass_.reopen(scope);
}

bool Accumulation::someone_leaves(bool self) {
  return std::ranges::max(train_.ranks.gather_words("the end of a micro step", {self ? 1 : 0})) > 0;
}

void Accumulation::begin_agreed() {
  ++count_.done;
  ++count_.free;
  train_.micro_step = std::max(train_.micro_step, 1);
  train_.last_micro_step = false;
  count_.slots_changed = true;
  if (train_.plan.empties_gradients()) passes_.gradients.forget();
  pass_.agree({.alone = !agrees_on_leaving()});
}

void Accumulation::finish_pass() {
  pass_.finish();
  if (!pass_.follows_plan()) passes_.order.adopt(pass_.order());
}

void Accumulation::end_open_micro_step() {
  if (guard_.phase() != Phase::micro_step) return;
  guard_.refuse_after_failure("the micro step cannot end");
  guard_.or_poison([&] {
    walker_.resume();
    end_first_forward();
    for (finish_pass(); agrees_on_leaving() && someone_leaves(false); finish_pass()) begin_agreed();
    if (!count_.all_at_once && train_.micro_step + 1 == own_micro_steps() &&
        own_micro_steps() < all_micro_steps())
      serve_last_micro_step();
  });
  if (!passes_.recomputation.repeating()) {
    if (train_.in_last_stage()) losses_.end_micro_step();
    count_.done += count_.all_at_once ? own_micro_steps() : 1;
  }
  passes_.recomputation.end_micro_step();
  guard_.enter<Call::micro_step, Phase::between_steps>();
}

// Takes part in the exchanges of the last micro step, in which this rank has no micro batch.
void Accumulation::serve_last_micro_step() {
  guard_.require_same(Call::micro_step);
  ++train_.micro_step;
  train_.last_micro_step = true;
  const StepPlans& plans = train_.plan.steps;
  walker_.walk(std::exchange(count_.slots_changed, false) ? plans.only_without_batch
                                                          : plans.without_batch);
}

// Ranks may have different numbers of micro batches, so there is no moment in between at which all
// ranks can meet.
void Accumulation::refuse_among_micro_batches() const {
  const bool in_forward = guard_.phase() == Phase::micro_step && pass_.in_forward();
  const int begun = begun_micro_steps();
  if (!train_.plan.rank_independent() || begun == 0 || guard_.phase() == Phase::evaluation) return;
  if (begun == own_micro_steps() && !in_forward) return;
  throw UsageError(
      "this call came " +
      std::string(in_forward ? "between forward and backward" : "among micro batches") +
      ", in micro batch " + std::to_string(begun) + " of the " + std::to_string(own_micro_steps()) +
      " that this rank has in a step; with zero_core.rank_independent, calls that all "
      "ranks make belong after Engine::step()");
}

void Accumulation::come_to_rest(Call call) {
  const CallRule& rule = rule_of(call);
  guard_.refuse_after_failure(rule.name);
  const bool ahead = train_.offloads_to_file() || train_.offloads_to_host();
  const bool free = train_.model.any_order && rule.among != Among::no &&
                    !(rule.among == Among::unless_read_ahead && ahead);
  const bool among = guard_.phase() == Phase::micro_step || count_.done != 0;
  if (among && !free && rule.among != Among::yes)
    throw UsageError(
        std::string(rule.name) +
        " was called among the micro steps of a step; it belongs after Engine::step()");
  come_to_rest();
  const bool fits_in_pass = rule.among == Among::yes || rule.among == Among::free_order;
  if (!fits_in_pass && !passes_.current().open().empty())
    throw UsageError(
        std::string(rule.name) +
        " was called inside of a forward or backward pass; it belongs before or after");
}

void Accumulation::come_to_rest() {
  if (train_.model.any_order) refuse_among_micro_batches();
  if (guard_.phase() != Phase::micro_step || !train_.model.any_order) return end_open_micro_step();
  guard_.refuse_after_failure("the micro step cannot continue");
  guard_.or_poison([&] {
    walker_.resume();
    if (!pass_.open().empty()) return;
    end_first_forward();
    if (!pass_.in_forward()) return end_open_micro_step();
    pass_.rest();
    if (pass_.follows_plan() && agrees_on_leaving() && someone_leaves(false)) {
      pass_.finish();
      begin_agreed();
      pass_.rest();
    }
  });
}

void Accumulation::make_way() {
  if (guard_.phase() == Phase::micro_step && pass_.follows_plan())
    walker_.pause();
  else
    count_.slots_changed = true;
}

void Accumulation::note_new_values() {
  walker_.pause();
  count_.slots_changed = true;
  walker_.forget_contents();
}

bool Accumulation::drop_gradients() {
  if (guard_.phase() == Phase::micro_step) {
    if (count_.done == 0 && pass_.in_forward()) return false;
    come_to_rest();
    if (!pass_.open().empty())
      throw UsageError(
          "Engine::drop_gradients() was called inside of a forward or backward pass: call it "
          "between passes, on all ranks; a program with LibTorch calls zero_grad() of the module, "
          "at any time, as with torch's optimizers");
  }
  if (std::exchange(count_.done, 0) == 0) return false;
  const bool open = guard_.phase() == Phase::micro_step;
  passes_.gradients.forget();
  open ? losses_.keep_newest() : losses_.begin_step();
  if (train_.offload) train_.offload->take_squares();
  train_.last_micro_step = count_.more_after_last = false;
  train_.micro_step = count_.free = 0;  // those of a forward pass that has already run
  if (open && !pass_.follows_plan()) {
    // The agreed pass adds to sums, so these begin with zeros.
    walker_.begin(train_.plan.steps.first);
    pass_.serve();
    train_.micro_step = count_.done = count_.free = 1;
  }
  return true;
}

void Accumulation::end_step(std::optional<double> mean_over) {
  const bool counted = count_.loop != MicroStepCount::no_loop || train_.plan.rank_independent();
  const int done = ended_micro_steps();
  if (counted ? done != own_micro_steps() : done == 0)
    throw UsageError("Engine::step() was called after " + std::to_string(done) + " of " +
                     std::to_string(own_micro_steps()) +
                     " micro steps; run every element of Engine::micro_steps()");
  if (more_repeats())
    throw UsageError(
        "Engine::step() was called before the micro batches of zero_core.recompute_every were "
        "repeated: loop over Engine::micro_steps(), or begin micro steps while "
        "Engine::more_micro_steps() returns true, or as many as Engine::micro_batches() lists");
  if (mean_over && train_.plan.rank_independent())
    throw UsageError(
        "StepOptions::mean_over was set with zero_core.rank_independent, whose means are over the "
        "micro batches of all ranks: leave it out");
  if (mean_over && !(*mean_over > 0 && std::isfinite(*mean_over)))
    throw UsageError("StepOptions::mean_over is " + std::to_string(*mean_over) +
                     "; expected a positive number");
  train_.losses = mean_over.value_or(done);
  count_.done = count_.free = 0;
  passes_.gradients.name_unasked();
  losses_.name_missing();
}

bool Accumulation::reduce_late() {
  if (train_.last_micro_step) return count_.more_after_last;
  train_.last_micro_step = true;
  walker_.walk(train_.plan.steps.late_reductions);
  return true;
}

}  // namespace zero::detail
