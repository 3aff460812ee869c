// Records the origin of a step's gradients: this engine's loss, with its loss scale; another
// engine's loss, with that engine's scale; or any other backward. Belongs to the thread of the
// passes.
#pragma once

#include <string>

namespace zero::pytorch {

class LossOrigins {
 public:
  LossOrigins() = default;
  LossOrigins(const LossOrigins&) = delete;
  ~LossOrigins() { end_step(); }

  // The gradients of this step, so far.
  struct Kinds {
    bool scaled = false;     // of losses that were multiplied by this engine's loss scale
    bool of_others = false;  // by that of another engine
    bool by_hand = false;    // of any other backward
    bool any() const { return scaled || of_others || by_hand; }
    bool mixed() const { return scaled && by_hand; }
  };
  const Kinds& of_step() const { return of_step_; }

  // The program reads this engine's loss scale, for the next backward.
  void read_scale();
  // A backward reaches the engine's parameters. needs_scale: a loss without a scale gives gradients
  // that are too small. Throws UsageError for such a loss, unless from another engine: judge()
  // checks whether such gradients are kept.
  void begin_backward(bool needs_scale);
  // Call for each gradient of the running backward.
  void note_gradient() { of_step_.*running_ = true; }
  // Call before a step with gradients of another engine's loss. Throws UsageError if gradients have
  // another engine's loss scale; returns the notice for gradients of another engine's loss that are
  // added to the engine's own, or "". `parameter`: the name of any parameter of the engine.
  std::string judge(bool needs_scale, const std::string& parameter) const;
  void forget_gradients() { of_step_ = {}; }
  void end_step();

 private:
  Kinds of_step_;
  bool Kinds::*running_ = &Kinds::by_hand;
  bool scaled_ = false;  // the scale was read, and no backward has come since
};

}  // namespace zero::pytorch
