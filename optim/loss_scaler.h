// The factor of the loss that keeps small fp16 gradients above zero: DeepSpeed's state machine of
// ZeRO stages 1 to 3 (DynamicLossScaler), the same at every stage here. One call per optimizer step
// with what all ranks agreed on; host only, nothing but numbers.
#pragma once

#include <cstdint>

namespace zero::optim {

// DeepSpeed's keys of "fp16" and their defaults.
struct LossScaleOptions {
  double loss_scale = 0;  // 0: dynamic; else it stays at this
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;  // overflows that are forgiven, less one; below 1: all of them
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;  // DeepSpeed takes integers; older releases took 0.01 too
};

// What a checkpoint keeps.
struct LossScalerState {
  double scale = 1;
  std::int64_t hysteresis = 0, iteration = 0, last_overflow = -1;
  bool operator==(const LossScalerState&) const = default;
};

class LossScaler {
 public:
  LossScaler() = default;  // without scaling: 1 for ever
  // Throws ConfigError for a scale, window or floor that cannot be.
  explicit LossScaler(const LossScaleOptions& options);

  float scale() const { return static_cast<float>(state_.scale); }
  bool dynamic() const { return dynamic_; }
  // Whether overflow after overflow ends in an error.
  bool reaches_floor() const { return dynamic_ && options_.hysteresis >= 1; }
  // After a step. Throws NumericError for an overflow at the floor, where no step can follow.
  void update(bool overflow);

  const LossScalerState& state() const { return state_; }
  void restore(const LossScalerState& state) { state_ = state; }

 private:
  void lower();

  LossScaleOptions options_;
  bool dynamic_ = false;
  LossScalerState state_;
};

}  // namespace zero::optim
