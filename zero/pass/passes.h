// The passes of the program: a micro step's, and an evaluation's, which may come while the micro
// step is open. Belongs to the engine; for the program's thread.
#pragma once

#include "zero/pass/forward_order.h"
#include "zero/pass/gradient_use.h"
#include "zero/pass/pass.h"
#include "zero/pass/recomputation.h"
#include "zero/runtime/call_guard.h"

namespace zero::detail {

struct Passes {
  // All arguments must outlive this object.
  Passes(TrainState& train, const CallGuard& guard, PlanWalker& walker, HiddenMemory& hidden)
      : guard(guard),
        recomputation(train),
        gradients(train, walker, hidden, recomputation),
        order(train),
        micro_step(train, walker, hidden, gradients),
        evaluation(train, walker, hidden, gradients) {}

  // The pass that the next scope belongs to.
  Pass& current() { return guard.phase() == Phase::evaluation ? evaluation : micro_step; }

  const CallGuard& guard;
  Recomputation recomputation;
  GradientUse gradients;
  ForwardOrder order;
  Pass micro_step, evaluation;
};

}  // namespace zero::detail
