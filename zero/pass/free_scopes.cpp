// The part of Scopes for programs with a free order of calls (ModelSpec::any_order()): micro steps
// that leave the plan, and calls between micro steps.
#include <algorithm>
#include <utility>

#include "zero/pass/scopes.h"

namespace zero::detail {

namespace {

// Limits the growth of orders if passes never repeat.
constexpr std::ptrdiff_t longest_order = 8;  // factor on the number of units

}  // namespace

bool Scopes::someone_leaves(bool self) {
  return std::ranges::max(train_.ranks.gather_words("the end of a micro step", {self ? 1 : 0})) > 0;
}

void Scopes::leave_plan(Op op, int unit) {
  if (guard_.phase() == Phase::evaluation)
    leave_evaluation_plan();
  else
    leave_micro_plan(op, unit);
}

// A rest that follows in an additional micro step would be added after other micro batches.
void Scopes::refuse_other_order(Op op, int unit) const {
  if (!train_.plan.rank_independent()) return;
  throw UsageError(std::string(name_of(op)) + " of unit " + unit_name(unit) +
                   " came in another order than in the first pass, or once more; with "
                   "zero_core.rank_independent each micro batch uses the units in the order of the "
                   "first one (it may skip some): keep to one order, or leave the key out");
}

// Ranks may have different numbers of micro batches, so there is no moment in between at which all
// ranks can meet.
void Scopes::refuse_among_micro_batches() const {
  const bool open = guard_.phase() == Phase::micro_step;
  const int begun = begun_micro_steps();
  if (!train_.plan.rank_independent() || begun == 0 || guard_.phase() == Phase::evaluation) return;
  if (begun == own_micro_steps() && !(open && in_forward())) return;
  throw UsageError(
      "this call came " +
      std::string(open && in_forward() ? "between forward and backward" : "among micro batches") +
      ", in micro batch " + std::to_string(begun) + " of the " + std::to_string(own_micro_steps()) +
      " that this rank has in a step; with zero_core.rank_independent, calls that all "
      "ranks make belong after Engine::step()");
}

// Serves other ranks to the end of the plan, with zeros as this rank's remaining gradients; these
// follow in an additional micro step.
void Scopes::leave_micro_plan(Op op, int unit) {
  refuse_other_order(op, unit);
  if (train_.last_micro_step && !train_.plan.completes_each())
    throw UsageError(
        "a pass leaves the order of earlier ones in the micro step that was said to be the last, "
        "whose sums are on their way: do not announce it, or set zero_core.gradient_sync to "
        "\"each\"");
  more_after_last_ = more_after_last_ || train_.last_micro_step;
  const std::vector<int> shown = walker_.in_forward() ? forward_ : std::vector<int>();
  const std::vector<PlanWalker::OpenScope> open = walker_.take_open();
  walker_.finish();
  if (agrees_on_leaving()) someone_leaves(true);
  begin_free_micro_step();
  for (const int unit : shown) free_.note(unit);
  for (const PlanWalker::OpenScope& scope : open) free_.reopen(scope);
}

void Scopes::leave_evaluation_plan() {
  const std::vector<PlanWalker::OpenScope> open = walker_.take_open();
  walker_.finish();
  guard_.require_same(Call::next_evaluation);
  train_.ranks.gather_words("Evaluation::next", {leaves_evaluation_plan_});
  free_evaluation_.begin(false);
  for (const PlanWalker::OpenScope& scope : open) free_evaluation_.reopen(scope);
}

void Scopes::begin_free_micro_step() {
  ++micro_steps_done_;
  ++free_micro_steps_;
  train_.micro_step = std::max(train_.micro_step, 1);
  train_.last_micro_step = false;
  slots_changed_ = true;
  if (train_.plan.empties_gradients()) std::ranges::fill(touched_, char{0});
  free_.begin(!agrees_on_leaving());
}

void Scopes::end_free_micro_step() {
  free_.finish();
  if (!free_.order().empty()) adopt_order(free_.order());
}

void Scopes::complete_and_forget(int flat_unit) {
  complete_gradients(flat_unit);
  for (const SegmentId id : train_.layout().trainable_of(flat_unit))
    for (const ParamPlace& place : train_.layout().segment(id).params) touched_[place.param] = 0;
}

// All ranks have seen the same passes.
void Scopes::adopt_order(const std::vector<int>& shown) {
  std::vector<int> used = merged_order(used_order_, shown), order = used;
  insert_missing(train_.model, order);
  const auto longest = longest_order * std::ssize(train_.model.units);
  if (order == train_.plan.inputs.order || std::ssize(order) > longest ||
      !is_nested(train_.model, order))
    return;
  used_order_ = std::move(used);
  train_.plan.change_order(std::move(order));
}

bool Scopes::in_forward() const {
  if (free_.active()) return !free_.in_backward();
  return learner_.active() || paused_ || walker_.in_forward();
}

void Scopes::come_to_rest(Call call) {
  const CallRule& rule = rule_of(call);
  guard_.refuse_after_failure(rule.name);
  const bool ahead = train_.offloads_to_file() || train_.offloads_to_host();
  const bool free = train_.model.any_order && rule.among != Among::no &&
                    !(rule.among == Among::unless_read_ahead && ahead);
  if (!free && rule.among != Among::yes) refuse_among_micro_steps(rule.name);
  come_to_rest();
  const bool fits_in_pass = rule.among == Among::yes || rule.among == Among::free_order;
  if (!fits_in_pass && inside_any())
    throw UsageError(
        std::string(rule.name) +
        " was called inside of a forward or backward pass; it belongs before or after");
}

void Scopes::come_to_rest() {
  if (train_.model.any_order) refuse_among_micro_batches();
  if (guard_.phase() != Phase::micro_step || !train_.model.any_order) return end_open_micro_step();
  guard_.refuse_after_failure("the micro step cannot continue");
  guard_.or_poison([&] {
    resume_micro_step();
    if (inside_any()) return;
    end_learning();
    if (!in_forward()) return end_open_micro_step();
    if (!free_.active()) walker_.finish_forward();
    if (!agrees_on_leaving()) return;
    if (!free_.active() && someone_leaves(false)) {
      walker_.finish();
      begin_free_micro_step();
    }
    if (free_.active()) free_.settle();
  });
}

void Scopes::note_new_values() {
  if (guard_.phase() == Phase::micro_step && !paused_ && walker_.active()) pause_micro_step();
  if (!free_.active()) slots_changed_ = true;
  walker_.forget_contents();
}

void Scopes::pause_micro_step() {
  if (walker_.active()) paused_ = walker_.pause();
}

void Scopes::resume_micro_step() {
  if (!paused_) return;
  walker_.resume(std::move(*paused_));
  paused_.reset();
}

bool Scopes::drop_gradients() {
  if (guard_.phase() == Phase::micro_step) {
    if (micro_steps_done_ == 0 && in_forward()) return false;
    come_to_rest();
    if (inside_any())
      throw UsageError(
          "Engine::drop_gradients() was called inside of a forward or backward pass: call it "
          "between passes, on all ranks; a program with LibTorch calls zero_grad() of the module, "
          "at any time, as with torch's optimizers");
  }
  if (std::exchange(micro_steps_done_, 0) == 0) return false;
  std::ranges::fill(touched_, char{0});
  begin_losses();
  if (guard_.phase() == Phase::micro_step) loss_sum_ = micro_loss_;
  if (train_.offload) train_.offload->take_squares();
  train_.last_micro_step = more_after_last_ = false;
  train_.micro_step = 0;  // that of a forward pass that has already run
  if (free_.active()) {
    // The free pass adds to sums, so these begin with zeros.
    walker_.begin(train_.plan.steps.first);
    walker_.finish();
    train_.micro_step = micro_steps_done_ = free_micro_steps_ = 1;
  }
  return true;
}

}  // namespace zero::detail
