// A micro step or an evaluation pass that has left the planned order (ModelSpec::any_order()): the
// ranks agree on each scope, and a gradient is reduced when the slot is needed or at the end. The
// order that a micro step has shown becomes part of the order of later micro steps. Belongs to
// Scopes; for the program's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "zero/pass/agreed_scopes.h"
#include "zero/pass/order_learner.h"

namespace zero::detail {

class FreePass {
 public:
  // `completes` makes a flat unit's gradient whole before it is reduced.
  FreePass(TrainState& train, PlanWalker& walker, std::function<void(int)> completes)
      : train_(train),
        walker_(walker),
        scopes_(train, walker, "the order of units in a pass that has left the plan"),
        completes_(std::move(completes)) {}

  bool active() const { return active_; }
  bool in_backward() const { return in_backward_; }
  // `alone`: as in AgreedScopes::begin().
  void begin(bool alone);
  // Collective like AgreedScopes::enter(), reopen() and note().
  void enter(Op op, int unit, std::int64_t scope) {
    scopes_.enter(op, unit, scope, [this](Op o, int u) { add(o, u); });
  }
  void reopen(const PlanWalker::OpenScope& scope);
  void note(int unit) {
    scopes_.note(unit, [this](Op o, int u) { add(o, u); });
  }
  bool leave(std::int64_t scope) noexcept { return scopes_.leave(scope); }
  bool inside(Op op, int unit) const { return scopes_.inside(op, unit); }
  bool inside_any() const { return scopes_.inside_any(); }
  // Collective: takes part in the scopes that other ranks open until all ranks reach this call, or
  // finish().
  void settle() {
    scopes_.finish([this](Op o, int u) { add(o, u); });
  }
  // Ends the pass. Reduces the remaining gradients.
  void finish();
  void abandon() noexcept { active_ = false; }
  // The forward units of the pass that has ended, including noted ones; empty if the pass was
  // alone.
  const std::vector<int>& order() const { return order_; }

 private:
  void add(Op op, int unit);
  void make_room(int unit);
  void reduce(int flat_unit);

  TrainState& train_;
  PlanWalker& walker_;
  AgreedScopes scopes_;
  std::function<void(int)> completes_;
  bool active_ = false, alone_ = false, in_backward_ = false;
  std::vector<int> order_;
  std::vector<int> gradients_;  // per gradient slot: the flat unit whose gradient is there, or -1
  StepPlan reduction_;
};

}  // namespace zero::detail
