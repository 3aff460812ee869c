#include "zero/run/evaluator.h"

#include <algorithm>

namespace zero::detail {

void Evaluator::begin(bool among_micro_steps) {
  train_.require_values("");
  if (among_micro_steps)
    throw UsageError(
        "Engine::evaluate() was called among the micro steps of a step; call it after "
        "Engine::step()");
  guard_.enter(Phase::evaluation);
  passes_ = 0;
}

bool Evaluator::anyone_has_batch(bool have_batch) {
  if (!train_.plan.inputs.gather_parameters) return have_batch;
  const std::vector<std::int64_t> flags =
      train_.ranks.gather_words("Evaluation::next", {have_batch ? 1 : 0});
  return std::find(flags.begin(), flags.end(), 1) != flags.end();
}

bool Evaluator::next(bool have_batch) {
  constexpr const char* call = "Evaluation::next()";
  guard_.check(Phase::evaluation, call);
  return guard_.or_poison([&] {
    do {
      walker_.finish();
      guard_.require_same_call(call);
      if (!anyone_has_batch(have_batch)) return false;
      const StepPlans& plans = train_.plan.steps;
      walker_.begin(passes_++ == 0 ? plans.evaluation_first : plans.evaluation_next);
      if (!have_batch) walker_.walk_without_compute();
    } while (!have_batch);
    return true;
  });
}

void Evaluator::end() noexcept {
  if (guard_.phase() != Phase::evaluation) return;
  guard_.enter(Phase::between_steps);
  try {
    if (walker_.active()) walker_.abandon();
  } catch (const std::exception&) {
    guard_.poison_and_keep(std::current_exception());
  }
}

}  // namespace zero::detail
