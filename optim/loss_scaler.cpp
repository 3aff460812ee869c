#include "optim/loss_scaler.h"

#include <cmath>
#include <string>

#include "zero/base/error.h"
#include "zero/base/number_text.h"

namespace zero::optim {

namespace {

constexpr std::int64_t largest_power = 127;  // of a float

void require(bool holds, const std::string& key, const std::string& expected) {
  if (!holds) throw ConfigError("fp16." + key + ": expected " + expected);
}

}  // namespace

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), dynamic_(options.loss_scale == 0) {
  if (!dynamic_) {
    const auto scale = static_cast<float>(options.loss_scale);
    require(std::isnormal(scale) && scale > 0, "loss_scale",
            "0 for a dynamic scale, or a positive number that fp32 has");
    state_.scale = options.loss_scale;
    return;
  }
  require(options.initial_scale_power >= 0 && options.initial_scale_power <= largest_power,
          "initial_scale_power", "0 to 127");
  require(options.loss_scale_window > 0, "loss_scale_window", "more than 0");
  require(options.min_loss_scale > 0, "min_loss_scale", "more than 0");
  state_.scale = std::ldexp(1, static_cast<int>(options.initial_scale_power));
  state_.hysteresis = options.hysteresis;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_ || advance(options_, overflow, state_)) return;
  throw NumericError("gradients overflow with the loss scale at its floor, fp16.min_loss_scale " +
                     shortest_text(options_.min_loss_scale) +
                     "; lower the learning rate, clip gradients or use bf16");
}

}  // namespace zero::optim
