// Loss scale that keeps small fp16 gradients above zero: DeepSpeed's state machine of ZeRO stages 1
// to 3 (DynamicLossScaler), used at every stage. Advanced once per optimizer step, on values that
// all ranks agreed on.
#pragma once

#include <cstdint>

namespace zero::optim {

// DeepSpeed's keys of "fp16", with defaults.
struct LossScaleOptions {
  double loss_scale = 0;  // 0: dynamic; otherwise the constant scale
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;  // overflows that lower the scale; below 1: none do
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;  // DeepSpeed takes integers; older releases also took 0.01
};

// Contents of a checkpoint.
struct LossScalerState {
  double scale = 1;
  std::int64_t hysteresis = 0, iteration = 0, last_overflow = -1;
  bool operator==(const LossScalerState&) const = default;
};

// Advances the state by a step; returns false if an overflow met the floor, so that no step can
// follow. Compiles as host code and, with --expt-relaxed-constexpr, as device code.
constexpr bool advance(const LossScaleOptions& options, bool overflow, LossScalerState& state) {
  constexpr double factor = 2, largest = 0x1p127;  // of a float
  bool sound = true;
  if (!overflow) {
    if (options.consecutive_hysteresis) state.hysteresis = options.hysteresis;
    const std::int64_t stable = state.iteration - state.last_overflow - 1;
    if (stable > 0 && stable % options.loss_scale_window == 0) {
      state.hysteresis = options.hysteresis;
      // DeepSpeed's scale has no bound, but a float has one.
      if (state.scale < largest) state.scale *= factor;
    }
  } else if (options.hysteresis != 1 && state.hysteresis != 1) {
    --state.hysteresis;
  } else {
    const double lower = state.scale / factor, floor = options.min_loss_scale;
    sound = state.scale != floor;
    state.scale = lower < floor ? floor : lower;
  }
  if (overflow) state.last_overflow = state.iteration;
  ++state.iteration;
  return sound;
}

class LossScaler {
 public:
  LossScaler() = default;  // without scaling: always 1
  // Throws ConfigError if a scale, window or floor is out of range.
  explicit LossScaler(const LossScaleOptions& options);

  float scale() const { return static_cast<float>(state_.scale); }
  bool dynamic() const { return dynamic_; }
  // Returns true if repeated overflows end in an error.
  bool reaches_floor() const { return dynamic_ && options_.hysteresis >= 1; }
  // Advances after a step. Throws NumericError when an overflow meets the floor, since no step can
  // follow.
  void update(bool overflow);

  const LossScaleOptions& options() const { return options_; }
  const LossScalerState& state() const { return state_; }
  void restore(const LossScalerState& state) { state_ = state; }

 private:
  LossScaleOptions options_;
  bool dynamic_ = false;
  LossScalerState state_;
};

}  // namespace zero::optim
