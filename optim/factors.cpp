#include "optim/factors.h"

#include <cmath>

namespace zero::optim {

namespace {

// The schedule's betas where it has some, else the optimizer's.
Betas betas_of(const OptimizerOptions& options, const StepScalars& scalars) {
  return scalars.betas.value_or(Betas{options.beta1, options.beta2});
}

struct Corrections {
  double first = 1, second = 1;
};

Corrections corrections(const OptimizerOptions& options, const Betas& betas, std::int64_t step) {
  if (!options.bias_correction) return {};
  return {1 - power(betas.first, step), 1 - power(betas.second, step)};
}

}  // namespace

double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

AdamFactors<float> adam_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  const auto [first, second] = corrections(options, betas, scalars.step);
  const double rate = scalars.learning_rate;
  const double decay =
      decouples_weight_decay(options) ? -rate * scalars.weight_decay : scalars.weight_decay;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = static_cast<float>(betas.first),
          .gradient_share = static_cast<float>(1 - betas.first),
          .beta2 = static_cast<float>(betas.second),
          .square_share = static_cast<float>(1 - betas.second),
          .root_correction = static_cast<float>(1 / std::sqrt(second)),
          .epsilon = static_cast<float>(options.epsilon),
          .decay = static_cast<float>(decay),
          .step = static_cast<float>(-rate / first)};
}

SgdFactors<float> sgd_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const bool first = scalars.step == 1;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .weight_decay = scalars.weight_decay,
          .keep = first ? 0.0f : static_cast<float>(options.momentum),
          .take = first ? 1.0f : static_cast<float>(1 - options.dampening),
          .momentum = static_cast<float>(options.momentum),
          .step = -scalars.learning_rate};
}

LionFactors<float> lion_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  const double rate = scalars.learning_rate;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = static_cast<float>(betas.first),
          .gradient_share = static_cast<float>(1 - betas.first),
          .beta2 = static_cast<float>(betas.second),
          .momentum_share = static_cast<float>(1 - betas.second),
          .decay = static_cast<float>(-rate * scalars.weight_decay),
          .step = -scalars.learning_rate};
}

AdagradFactors<float> adagrad_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const double slowed = 1 + static_cast<double>(scalars.step - 1) * options.lr_decay;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .weight_decay = scalars.weight_decay,
          .epsilon = static_cast<float>(options.epsilon),
          .step = static_cast<float>(-scalars.learning_rate / slowed)};
}

double lamb_rate(const OptimizerOptions& options, const StepScalars& scalars) {
  const auto [first, second] = corrections(options, betas_of(options, scalars), scalars.step);
  return scalars.learning_rate * std::sqrt(second) / first;
}

LambFactors<float> lamb_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = static_cast<float>(betas.first),
          .gradient_share = static_cast<float>(1 - betas.first),
          .beta2 = static_cast<float>(betas.second),
          .square_share = static_cast<float>(1 - betas.second),
          .epsilon = static_cast<float>(options.epsilon),
          .weight_decay = scalars.weight_decay,
          .step = static_cast<float>(-lamb_rate(options, scalars) * scalars.step_scale)};
}

MuonFactors<float> muon_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const double rate = scalars.learning_rate;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .momentum = static_cast<float>(options.momentum),
          .gradient_share = static_cast<float>(1 - options.momentum),
          .decay = static_cast<float>(-rate * scalars.weight_decay),
          .step = static_cast<float>(-rate * scalars.step_scale)};
}

}  // namespace zero::optim
