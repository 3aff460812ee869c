// The part of Scopes for passes without gradients (Engine::evaluate); micro steps are in
// scopes.cpp.
#include <algorithm>

#include "zero/pass/scopes.h"

namespace zero::detail {

void Scopes::begin_evaluation() {
  // An evaluation that runs alone touches no state of the micro step, which stays open.
  if (!evaluates_alone()) come_to_rest(Call::evaluate);
  if (evaluates_alone() && guard_.phase() == Phase::micro_step)
    guard_.check(Call::evaluate);
  else
    guard_.require(Call::evaluate);
  train_.require_values("");
  resumes_micro_step_ = guard_.phase() == Phase::micro_step;
  if (!evaluates_alone()) {
    if (resumes_micro_step_) pause_micro_step();
    if (!paused_) slots_changed_ = true;
  }
  guard_.enter<Call::evaluate, Phase::evaluation>();
  evaluation_passes_ = 0;
}

bool Scopes::next_evaluation(bool have_batch) {
  guard_.check(Call::next_evaluation);
  return guard_.or_poison([&] {
    if (!evaluates_alone()) return next_evaluation_of_all(have_batch);
    free_evaluation_.abandon();
    guard_.require_same(Call::next_evaluation);
    if (have_batch) free_evaluation_.begin(true);
    return have_batch;
  });
}

bool Scopes::next_evaluation_of_all(bool have_batch) {
  do {
    end_evaluation_pass();
    guard_.require_same(Call::next_evaluation);
    const std::int64_t word =
        train_.keeps_parameters()
            ? have_batch
            : std::ranges::max(train_.ranks.gather_words("Evaluation::next", {have_batch}));
    if (word == 0) return false;
    if (word == leaves_evaluation_plan_) {
      free_evaluation_.begin(false);
      end_evaluation_pass();
      return next_evaluation_of_all(have_batch);
    }
    begin_evaluation_pass();
    if (!have_batch && !learner_.active()) walker_.walk_without_compute();
  } while (!have_batch);
  return true;
}

void Scopes::begin_evaluation_pass() {
  const StepPlans& plans = train_.plan.steps;
  const bool first = evaluation_passes_++ == 0;
  if (learner_.waits())
    learner_.begin();
  else
    walker_.begin(first ? plans.evaluation_first : plans.evaluation_next);
}

void Scopes::end_evaluation_pass() {
  if (free_evaluation_.active()) {
    free_evaluation_.finish();
    evaluation_passes_ = 0;  // no plan matches the slots' contents
  } else if (learner_.active()) {
    learn_order(false);
    if (used_order_ != train_.plan.inputs.order) evaluation_passes_ = 0;  // as above
  } else {
    walker_.finish();
  }
}

void Scopes::end_evaluation() noexcept {
  if (guard_.phase() != Phase::evaluation) return;
  try {
    const bool alone = evaluates_alone();
    free_evaluation_.abandon();
    if (!alone) {
      learner_.abandon();
      if (walker_.active()) walker_.abandon();
    }
  } catch (const std::exception& error) {
    guard_.poison_and_keep(error);
  }
  if (resumes_micro_step_)
    guard_.enter<Call::end_evaluation, Phase::micro_step>();
  else
    guard_.enter<Call::end_evaluation, Phase::between_steps>();
}

}  // namespace zero::detail
