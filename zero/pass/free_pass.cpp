#include "zero/pass/free_pass.h"

#include <utility>

namespace zero::detail {

void FreePass::begin(bool alone) {
  active_ = true;
  alone_ = alone;
  in_backward_ = false;
  order_.clear();
  gradients_.assign(train_.plan.inputs.gradient_slots.slots, -1);
  scopes_.begin(alone);
}

void FreePass::reopen(const PlanWalker::OpenScope& scope) {
  if (scope.op == Op::backward) return enter(scope.op, scope.target, scope.scope);
  scopes_.reopen(scope.target, scope.scope, [this](Op o, int u) { add(o, u); });
}

void FreePass::add(Op op, int unit) {
  if (op == Op::backward) {
    in_backward_ = true;
    make_room(unit);
  } else if (!in_backward_ && !alone_) {
    order_.push_back(unit);
  }
}

// If a slot contains another unit's gradient, reduces that first.
void FreePass::make_room(int unit) {
  if (!train_.plan.empties_gradients()) return;
  for (const int flat : train_.layout().needs_of_unit[unit]) {
    const int slot = train_.plan.inputs.gradient_slots.slot_of[flat];
    if (slot < 0) continue;
    if (gradients_[slot] >= 0 && gradients_[slot] != flat) reduce(gradients_[slot]);
    gradients_[slot] = flat;
  }
}

void FreePass::reduce(int flat_unit) {
  completes_(flat_unit);
  train_.runtime.compute().synchronize();
  reduction_ = train_.plan.reduction_of({flat_unit});
  walker_.begin(reduction_);
  walker_.finish();
  train_.runtime.communication().synchronize();
}

void FreePass::finish() {
  settle();
  for (int& flat : gradients_)
    if (flat >= 0) reduce(std::exchange(flat, -1));
  active_ = false;
}

}  // namespace zero::detail
