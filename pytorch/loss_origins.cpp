#include "pytorch/loss_origins.h"

#include <utility>

#include "pytorch/advice.h"
#include "pytorch/operations.h"
#include "zero/base/error.h"

namespace zero::pytorch {

void LossOrigins::read_scale() {
  scaled_ = true;
  thread_notes().scaled_last = this;
}

void LossOrigins::begin_backward(bool needs_scale) {
  const LossOrigins*& scaled_last = thread_notes().scaled_last;
  if (std::exchange(scaled_, false)) {
    scaled_last = nullptr;
    running_ = &Kinds::scaled;
    return;
  }
  running_ = scaled_last != nullptr ? &Kinds::of_others : &Kinds::by_hand;
  if (needs_scale && running_ == &Kinds::by_hand)
    throw UsageError(
        "Loss scaling is required under fp16, and backward was called on a loss without the "
        "engine's loss scale: call " +
        advice("ShardedModule::backward(loss)",
               "engine.backward(loss), or engine.scale(loss).backward()"));
}

std::string LossOrigins::judge(bool needs_scale, const std::string& parameter) const {
  const std::string came = "gradients of parameter " + parameter +
                           " and of others came from the backward of another engine's loss";
  const std::string forget =
      "if they belong to that engine's net alone, as in a GAN, forget them by zero_grad() of " +
      advice("this module", "this engine") + " before its next pass";
  if (needs_scale) throw UsageError(came + ", which has another loss scale: " + forget);
  if (!of_step_.scaled && !of_step_.by_hand) return "";
  return came + ", and are added to those of its own: " + forget;
}

void LossOrigins::end_step() {
  of_step_ = {};
  scaled_ = false;
  const LossOrigins*& scaled_last = thread_notes().scaled_last;
  if (scaled_last == this) scaled_last = nullptr;
}

}  // namespace zero::pytorch
