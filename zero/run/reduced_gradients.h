// The gradients at rest after the last reduction of a step: their norm, what programs see and
// change of them (StepOptions::inspect), and where they are not finite. The program's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "zero/run/transfers.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class ReducedGradients {
 public:
  ReducedGradients(TrainState& train, Transfers& transfers)
      : train_(train), transfers_(transfers) {}

  // What they are multiplied by, so that they are averages without a loss scale.
  double inverse_scale() const;
  // The loss scale with which this step's were made.
  float loss_scale() const { return loss_scale_; }
  void set_loss_scale(float scale) { loss_scale_ = scale; }
  // How many gradients each is the sum of.
  double summands() const;

  // Squares of the slice that this rank owns in the layout, at every stage, so that each element
  // counts once. Queues what adds up those of gradients in the device's memory.
  void queue_squares(optim::StepVote* vote);
  // Of gradients elsewhere: their squares were added up on the way there, unless they are to be
  // read again.
  optim::NormSum squares_elsewhere(bool read_again);
  // The norm of one parameter's over all ranks. Collective. Throws UsageError for a name without
  // gradient.
  double norm(std::string_view param);
  // Shows averages to the callback; what it leaves unchanged keeps its bits.
  void edit(const std::function<void(ParamShard)>& change);
  // "h.3.weight (element 17)", of this rank's.
  std::string locate_non_finite();

 private:
  // Calls each(array, segment) for the gradients of all trainable segments.
  void for_all(const std::function<void(const ArrayId&, const Segment&)>& each);

  optim::NormSum own_squares(int param);
  std::vector<float> read(const ArrayId& gradient, const ParamRange& piece);

  TrainState& train_;
  Transfers& transfers_;
  float loss_scale_ = 1;
};

}  // namespace zero::detail
