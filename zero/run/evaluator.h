// Passes of forward scopes without gradients (Engine::evaluate). Owned by the engine; the program's
// thread.
#pragma once

#include "zero/run/call_guard.h"
#include "zero/run/order_learner.h"
#include "zero/run/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Evaluator {
 public:
  Evaluator(TrainState& train, CallGuard& guard, PlanWalker& walker, OrderLearner& learner)
      : train_(train), guard_(guard), walker_(walker), learner_(learner) {}

  // Throws UsageError where a step has begun.
  void begin(bool among_micro_steps);
  // Collective. False once no rank has a batch left; a rank without batches walks along for the
  // gathers of those that have some.
  bool next(bool have_batch);
  // Left early, on this rank alone or on all: the next collective call finds out who differs.
  void end() noexcept;

 private:
  bool anyone_has_batch(bool have_batch);
  void begin_pass();
  void finish_pass();

  TrainState& train_;
  CallGuard& guard_;
  PlanWalker& walker_;
  OrderLearner& learner_;
  int passes_ = 0;
};

}  // namespace zero::detail
