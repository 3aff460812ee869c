// The half of Scopes for passes without gradients (Engine::evaluate); scopes.cpp has micro steps.
#include <algorithm>

#include "zero/run/scopes.h"

namespace zero::detail {

void Scopes::begin_evaluation() {
  end_open_micro_step();
  guard_.require(Phase::between_steps, "Engine::evaluate()");
  train_.require_values("");
  refuse_among_micro_steps("Engine::evaluate()");
  guard_.enter(Phase::evaluation);
  evaluation_passes_ = 0;
}

bool Scopes::next_evaluation(bool have_batch) {
  constexpr const char* call = "Evaluation::next()";
  const StepPlans& plans = train_.plan.steps;
  guard_.check(Phase::evaluation, call);
  return guard_.or_poison([&] {
    do {
      if (learner_.active())
        train_.plan.learn_order(learner_.finish(), false);
      else
        walker_.finish();
      guard_.require_same_call(call);
      const bool anyone_has_batch =
          !train_.policy().parameters_sharded
              ? have_batch
              : std::ranges::max(train_.ranks.gather_words("Evaluation::next", {have_batch})) > 0;
      if (!anyone_has_batch) return false;
      const bool first = evaluation_passes_++ == 0;
      if (learner_.waits())
        learner_.begin();
      else
        walker_.begin(first ? plans.evaluation_first : plans.evaluation_next);
      if (!have_batch && !learner_.active()) walker_.walk_without_compute();
    } while (!have_batch);
    return true;
  });
}

void Scopes::end_evaluation() noexcept {
  if (guard_.phase() != Phase::evaluation) return;
  guard_.enter(Phase::between_steps);
  try {
    learner_.abandon();
    if (walker_.active()) walker_.abandon();
  } catch (const std::exception& error) {
    guard_.poison_and_keep(error);
  }
}

}  // namespace zero::detail
