// The losses that the program gives in the micro steps of a step: their sum, and each by itself if
// ranks list losses (EnginePlan::losses_per_rank()). Belongs to Accumulation; for the program's
// thread.
#pragma once

#include <vector>

#include "zero/state/step_scalars.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class StepLosses {
 public:
  StepLosses(TrainState& train, StepScalars& scalars)
      : train_(train), scalars_(scalars), each_(train.plan.losses_per_rank(), 0) {}

  void begin_step();
  void begin_micro_step() {
    given_ = false;
    newest_ = 0;
  }
  void add(int micro_step, double mean) {
    given_ = true;
    sum_ += mean;
    newest_ += mean;
    if (!each_.empty()) each_[micro_step] += mean;
  }
  // Overload for device memory.
  void add(int micro_step, const float* mean) {
    given_ = true;
    scalars_.add_loss(mean, micro_step);
  }
  void end_micro_step() {
    if (!given_) ++missing_;
  }
  // Begins the step anew with the newest micro step as its first.
  void keep_newest() {
    begin_step();
    sum_ = newest_;
  }
  // Sum over this rank's micro steps, on the host.
  double sum() const { return sum_; }
  // With zero_core.rank_independent: of each micro step; otherwise empty.
  const std::vector<double>& each() const { return each_; }
  // Prints once on rank 0 if the program has omitted losses.
  void name_missing();

 private:
  TrainState& train_;
  StepScalars& scalars_;
  double sum_ = 0, newest_ = 0;  // of the step, and of the newest micro step
  std::vector<double> each_;
  bool given_ = false;  // in the newest micro step
  int missing_ = 0;     // in this step
  bool missing_named_ = false;
};

}  // namespace zero::detail
