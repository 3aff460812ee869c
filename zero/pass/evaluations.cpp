// The part of Scopes for passes without gradients (Engine::evaluate); micro steps are in
// scopes.cpp.
#include <algorithm>

#include "zero/pass/scopes.h"

namespace zero::detail {

void Scopes::begin_evaluation() {
  if (evaluates_alone()) {
    // The micro step is unchanged, because the evaluation touches none of its state.
    if (guard_.phase() != Phase::micro_step)
      guard_.require(Phase::between_steps, "Engine::evaluate()");
    guard_.refuse_after_failure("Engine::evaluate() was called");
  } else {
    come_to_rest();
    if (guard_.phase() == Phase::micro_step) {
      if (inside_any())
        throw UsageError(
            "Engine::evaluate() was called inside of a forward or backward pass, in which "
            "parameters are gathered for that pass; call it before or after");
      guard_.require_same_call("Engine::evaluate()");
    } else {
      guard_.require(Phase::between_steps, "Engine::evaluate()");
      if (!train_.model.any_order) refuse_among_micro_steps("Engine::evaluate()");
    }
  }
  train_.require_values("");
  resumes_micro_step_ = guard_.phase() == Phase::micro_step;
  if (!evaluates_alone()) {
    if (resumes_micro_step_) pause_micro_step();
    if (!paused_) slots_changed_ = true;
  }
  guard_.enter(Phase::evaluation);
  evaluation_passes_ = 0;
}

bool Scopes::next_evaluation(bool have_batch) {
  guard_.check(Phase::evaluation, "Evaluation::next()");
  return guard_.or_poison([&] {
    if (!evaluates_alone()) return next_evaluation_of_all(have_batch);
    free_evaluation_.abandon();
    guard_.require_same_call("Evaluation::next()");
    if (have_batch) free_evaluation_.begin(true);
    return have_batch;
  });
}

bool Scopes::next_evaluation_of_all(bool have_batch) {
  do {
    end_evaluation_pass();
    guard_.require_same_call("Evaluation::next()");
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
    train_.plan.learn_order(learner_.finish(), false);
    used_order_ = learner_.used();
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
  guard_.enter(resumes_micro_step_ ? Phase::micro_step : Phase::between_steps);
}

}  // namespace zero::detail
