// Passes without gradients (Engine::evaluate()): checks the order of the program's calls, and
// begins and ends the passes. Belongs to the engine; for the program's thread.
#pragma once

#include <cstdint>

#include "zero/pass/accumulation.h"
#include "zero/pass/passes.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Evaluations {
 public:
  // All arguments must outlive this object.
  Evaluations(TrainState& train, CallGuard& guard, Passes& passes, Accumulation& accumulation)
      : train_(train),
        guard_(guard),
        passes_(passes),
        pass_(passes.evaluation),
        accumulation_(accumulation) {}

  // Throws UsageError if a step has begun, unless the order of calls is free.
  void begin();
  // Collective. Returns false once no rank has a batch left; a rank without batches takes part in
  // the gathers of other ranks.
  bool next(bool have_batch);
  // Call before a forward scope is opened in the evaluation: as Accumulation::admit().
  void admit(Op op, int unit);
  // Ends the evaluation early, on this rank only or on all: the next collective call detects ranks
  // that differ.
  void end() noexcept;

 private:
  // A third value next to 0 and 1 for "has no batch" and "has a batch".
  static constexpr std::int64_t leaves_plan_ = 2;

  // Whether an evaluation runs without a plan and without the other ranks.
  bool alone() const { return train_.model.any_order && train_.keeps_parameters(); }
  bool next_of_all(bool have_batch);
  void end_pass();

  TrainState& train_;
  CallGuard& guard_;
  Passes& passes_;
  Pass& pass_;  // that of the evaluation
  Accumulation& accumulation_;
  bool first_ = true;  // the next pass finds slots with other contents than a pass leaves there
  bool resumes_micro_step_ = false;  // afterwards
};

}  // namespace zero::detail
