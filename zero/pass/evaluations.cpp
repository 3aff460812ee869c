#include "zero/pass/evaluations.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace zero::detail {

void Evaluations::begin() {
  // An evaluation that runs alone touches no state of the micro step, which stays open.
  if (!alone()) accumulation_.come_to_rest(Call::evaluate);
  if (alone() && guard_.phase() == Phase::micro_step)
    guard_.check(Call::evaluate);
  else
    guard_.require(Call::evaluate);
  train_.require_values("");
  resumes_micro_step_ = guard_.phase() == Phase::micro_step;
  if (!alone()) accumulation_.make_way();
  guard_.enter<Call::evaluate, Phase::evaluation>();
  first_ = true;
}

bool Evaluations::next(bool have_batch) {
  guard_.check(Call::next_evaluation);
  return guard_.or_poison([&] {
    if (!alone()) return next_of_all(have_batch);
    pass_.end();
    guard_.require_same(Call::next_evaluation);
    if (have_batch) pass_.agree({.alone = true});
    return have_batch;
  });
}

bool Evaluations::next_of_all(bool have_batch) {
  const StepPlans& plans = train_.plan.steps;
  while (true) {
    end_pass();
    guard_.require_same(Call::next_evaluation);
    const std::int64_t word =
        train_.keeps_parameters()
            ? have_batch
            : std::ranges::max(train_.ranks.gather_words("Evaluation::next", {have_batch}));
    if (word == 0) return false;
    if (word == leaves_plan_)
      pass_.agree({});
    else if (passes_.order.waits())
      pass_.agree({.shows_order = true});
    else
      pass_.follow(std::exchange(first_, false) ? plans.evaluation_first : plans.evaluation_next);
    if (word != leaves_plan_ && have_batch) return true;
    if (pass_.follows_plan()) pass_.serve();
  }
}

void Evaluations::end_pass() {
  pass_.finish();
  if (pass_.shows_order()) passes_.order.learn(pass_.order(), false);
  if (!pass_.follows_plan()) first_ = !pass_.shows_order() || !passes_.order.used_all();
  pass_.end();
}

void Evaluations::admit(Op op, int unit) {
  if (!train_.model.any_order || !pass_.excludes(op, unit)) return;
  const std::vector<OpenScope> open = pass_.leave_plan();
  guard_.require_same(Call::next_evaluation);
  train_.ranks.gather_words("Evaluation::next", {leaves_plan_});
  pass_.agree({});
  for (const OpenScope& scope : open) pass_.reopen(scope);
}

void Evaluations::end() noexcept {
  if (guard_.phase() != Phase::evaluation) return;
  try {
    alone() ? pass_.end() : pass_.abandon();
  } catch (const std::exception& error) {
    guard_.poison_and_keep(error);
  }
  if (resumes_micro_step_)
    guard_.enter<Call::end_evaluation, Phase::micro_step>();
  else
    guard_.enter<Call::end_evaluation, Phase::between_steps>();
}

}  // namespace zero::detail
