#include "zero/updates_aside.h"

#include "optim/update_rules.h"
#include "zero/engine_core.h"

namespace zero::detail {

void UpdatesAside::judge(const UpdateTerms& terms) {
  stands_ = terms_ && terms_->given_rate == terms.given_rate &&
            terms_->scalars.step == terms.scalars.step &&
            terms_->scalars.gradient_multiplier == terms.scalars.gradient_multiplier;
}

// A program that gives the learning rate with each step tells it too late.
void EngineCore::guess_update() {
  if (!plan_.inputs.offload.speculative()) return;
  aside_.forget();
  if (!given_rate_) aside_.guess(terms_unclipped(applied_steps_, scaler_.scale()));
}

UpdateTerms EngineCore::terms_unclipped(std::int64_t applied_steps, float loss_scale) const {
  UpdateTerms terms;
  terms.scalars.step = applied_steps + 1;
  terms.scalars.gradient_multiplier = static_cast<float>(
      optim::clipped_multiplier(inverse_scale_at(loss_scale), 0, config_.gradient_clipping));
  return terms;
}

void EngineCore::run_update(const Instruction& instruction, const UpdateTerms& terms) {
  const During optimizer(clock_, StepClock::Activity::optimizer);
  const int target = instruction.target;
  await_copies(instruction);
  switch (instruction.op) {
    case Op::measure:
      return updater_->measure(terms);
    case Op::update_aside:
      speculation_.updated += plan_.inputs.offload.speculative();
      return updater_->update_aside(target, terms);
    case Op::publish:
      return store_->publish(target);
    default:
      break;
  }
  if (!aside_.stands() || !plan_.inputs.chunks[static_cast<std::size_t>(target)].aside)
    return updater_->update(target, terms);
  ++speculation_.published;
  store_->publish(target);
}

// Those that come before the program's next scope.
void EngineCore::run_updates_aside() {
  while (const Instruction* next = walker_->next_compute()) {
    if (next->op != Op::update_aside) return;
    const Instruction instruction = *next;
    walker_->enter(instruction.op, instruction.target);
    if (aside_.terms()) {
      maybe_delay();
      run_update(instruction, *aside_.terms());
    }
    walker_->leave(instruction.op, instruction.target);
  }
}

void EngineCore::walk_updates(const std::optional<UpdateTerms>& terms) {
  while (const Instruction* next = walker_->next_compute()) {
    const Instruction instruction = *next;
    walker_->enter(instruction.op, instruction.target);
    maybe_delay();
    if (terms) run_update(instruction, *terms);
    walker_->leave(instruction.op, instruction.target);
  }
  walker_->finish();
}

void EngineCore::drain() {
  if (!plan_.inputs.offload.delayed() || !aside_.terms()) return;
  try {
    walker_->begin(plan_.steps.drain);
    walk_updates(aside_.terms());
    runtime_.communication().synchronize();
    runtime_.compute().synchronize();
    finish_offload();
  } catch (const std::exception& error) {
    poison(error.what());
    throw;
  }
  aside_.forget();
}

}  // namespace zero::detail
