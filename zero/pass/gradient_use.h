// The program's use of gradients in backward: gives zeroed memory at the first request in a
// reduction period, completes gradients for their reduction, and names those never requested.
// Belongs to Passes; for the program's thread.
#pragma once

#include <algorithm>
#include <vector>

#include "zero/pass/hidden_memory.h"
#include "zero/pass/plan_walker.h"
#include "zero/pass/recomputation.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class GradientUse {
 public:
  GradientUse(TrainState& train, PlanWalker& walker, HiddenMemory& hidden,
              Recomputation& recomputation)
      : train_(train),
        walker_(walker),
        hidden_(hidden),
        recomputation_(recomputation),
        touched_(train.model.params.size(), 0),
        ever_touched_(touched_) {}

  // Waits for the gradient's slot. Zeroed at the first request in a reduction period; or `beta`
  // states whether kernels add.
  void* request(int param, float* beta);
  // Completes the gradient for a reduction after a backward scope: parts never requested are set to
  // zero, and so is the padding between parameters.
  void complete(int flat_unit);
  // Begins a reduction period.
  void forget() { std::ranges::fill(touched_, char{0}); }
  // Prints once on rank 0 the parameters whose gradient has never been requested.
  void name_unasked();

 private:
  void await(int flat_unit);

  TrainState& train_;
  PlanWalker& walker_;
  HiddenMemory& hidden_;
  Recomputation& recomputation_;
  std::vector<char> touched_;       // per parameter: requested in this reduction period
  std::vector<char> ever_touched_;  // per parameter
  bool unasked_named_ = false;
};

}  // namespace zero::detail
