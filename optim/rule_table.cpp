#include "optim/rule_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "optim/tensor_step.h"
#include "zero/base/text.h"

namespace zero::optim {

double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= base;
    base *= base;
  }
  return result;
}

namespace {

// Returns the schedule's betas, if any, otherwise the optimizer's.
Betas betas_of(const OptimizerOptions& options, const StepScalars& scalars) {
  return scalars.betas.value_or(Betas{options.beta1, options.beta2});
}

// Bias corrections of the first and second moment.
std::pair<double, double> corrections(const OptimizerOptions& options, const Betas& betas,
                                      std::int64_t step) {
  if (!options.bias_correction) return {1, 1};
  return {1 - power(betas.first, step), 1 - power(betas.second, step)};
}

AdamFactors<double> adam_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  const auto [first, second] = corrections(options, betas, scalars.step);
  const double rate = scalars.learning_rate, decay = scalars.weight_decay;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = betas.first,
          .gradient_share = 1 - betas.first,
          .beta2 = betas.second,
          .square_share = 1 - betas.second,
          .root_correction = 1 / std::sqrt(second),
          .epsilon = options.epsilon,
          .decay = decouples_weight_decay(options) ? -rate * decay : decay,
          .step = -rate / first};
}

SgdFactors<double> sgd_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const bool first = scalars.step == 1;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .weight_decay = scalars.weight_decay,
          .keep = first ? 0 : options.momentum,
          .take = first ? 1 : 1 - options.dampening,
          .momentum = options.momentum,
          .step = -scalars.learning_rate};
}

LionFactors<double> lion_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  const double rate = scalars.learning_rate;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = betas.first,
          .gradient_share = 1 - betas.first,
          .beta2 = betas.second,
          .momentum_share = 1 - betas.second,
          .decay = -rate * scalars.weight_decay,
          .step = -rate};
}

AdagradFactors<double> adagrad_factors(const OptimizerOptions& options,
                                       const StepScalars& scalars) {
  const double slowed = 1 + static_cast<double>(scalars.step - 1) * options.lr_decay;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .weight_decay = scalars.weight_decay,
          .epsilon = options.epsilon,
          .step = -scalars.learning_rate / slowed};
}

LambFactors<double> lamb_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const Betas betas = betas_of(options, scalars);
  const auto [first, second] = corrections(options, betas, scalars.step);
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = betas.first,
          .gradient_share = 1 - betas.first,
          .beta2 = betas.second,
          .square_share = 1 - betas.second,
          .epsilon = options.epsilon,
          .weight_decay = scalars.weight_decay,
          .step = -(scalars.learning_rate * std::sqrt(second) / first) * scalars.step_scale};
}

MuonFactors<double> muon_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const double rate = scalars.learning_rate;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .momentum = options.momentum,
          .gradient_share = 1 - options.momentum,
          .decay = -rate * scalars.weight_decay,
          .step = -rate * scalars.step_scale};
}

AdafactorFactors<double> adafactor_factors(const OptimizerOptions& options,
                                           const StepScalars& scalars) {
  const double step = static_cast<double>(scalars.step), decay = scalars.weight_decay;
  const double share = std::pow(step, options.beta2_decay);
  const bool adds = options.transformers_form;
  const double eps1 = options.eps1.value_or(adds ? 1e-30 : std::numeric_limits<float>::epsilon());
  double rate = scalars.learning_rate;
  if (options.relative_step)
    rate = std::min(options.warmup_init ? 1e-6 * step : rate, 1 / std::sqrt(step));
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta2 = 1 - share,
          .square_share = share,
          .epsilon = adds ? eps1 : 0,
          .least_root = adds ? 0 : eps1,
          .decay = adds ? -decay : -scalars.learning_rate * decay,
          .step = -rate,
          .scales = options.scale_parameter ? 1.0 : 0.0,
          .scales_decay = adds ? 1.0 : 0.0};
}

// Writes the factors, and then, for rules that see whole tensors, the values of TensorStep.
template <auto factors_of>
void write(const OptimizerOptions& options, const StepScalars& scalars, float* factors) {
  const auto values = factors_of(options, scalars);
  constexpr std::size_t count = sizeof values / sizeof(double);
  static_assert(count <= tensor_step_at && tensor_step_at + tensor_step_floats <= most_factors);
  std::ranges::transform(std::bit_cast<std::array<double, count>>(values), factors,
                         [](double value) { return static_cast<float>(value); });
  const bool adafactor = std::is_same_v<decltype(values), const AdafactorFactors<double>>;
  const TensorStep step{-values.step, adafactor ? options.eps2 : options.min_coeff,
                        adafactor ? options.d : options.max_coeff};
  std::memcpy(factors + tensor_step_at, &step, sizeof step);
}

using enum RuleKind;
using enum UpdateScope;
constexpr bool yes = true, no = false;

// In the order of RuleKind; the flags are betas, eps, momentum.
const UpdateRule table[] = {
    {adamw, "AdamW", elements, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write<adam_factors>},
    {adam, "Adam", elements, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write<adam_factors>},
    {sgd, "SGD", elements, {}, no, no, yes, write<sgd_factors>},
    {sgd_momentum, "SGD", elements, {"momentum_buffer"}, no, no, yes, write<sgd_factors>},
    {sgd_nesterov, "SGD", elements, {"momentum_buffer"}, no, no, yes, write<sgd_factors>},
    {lion, "Lion", elements, {"exp_avg"}, yes, no, no, write<lion_factors>},
    {adagrad, "Adagrad", elements, {"sum"}, no, yes, no, write<adagrad_factors>},
    {lamb, "Lamb", tensor_norms, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write<lamb_factors>},
    {lamb_eps_inside,
     "Lamb",
     tensor_norms,
     {"exp_avg", "exp_avg_sq"},
     yes,
     yes,
     no,
     write<lamb_factors>},
    {muon, "Muon", whole_matrices, {"momentum_buffer"}, no, no, yes, write<muon_factors>},
    {muon_gram, "Muon", whole_matrices, {"momentum_buffer"}, no, no, yes, write<muon_factors>},
    {muon_clamped, "Muon", whole_matrices, {"momentum_buffer"}, no, no, yes, write<muon_factors>},
    {adafactor, "Adafactor", tensor_norms, {"variance"}, no, no, no, write<adafactor_factors>},
    {adafactor_matrix, "Adafactor", tensor_factors, {}, no, no, no, write<adafactor_factors>},
};

}  // namespace

const UpdateRule& rule_of(RuleKind kind) {
  return table[static_cast<int>(kind)];
}

RuleKind rule_kind(const OptimizerOptions& options) {
  const std::string type = lower_case(options.type);
  if (type == "adam" || type == "adamw")
    return decouples_weight_decay(options) ? RuleKind::adamw : RuleKind::adam;
  if (type == "lion") return RuleKind::lion;
  if (type == "adagrad") return RuleKind::adagrad;
  if (type == "lamb") return options.eps_inside_sqrt ? RuleKind::lamb_eps_inside : RuleKind::lamb;
  if (type == "muon" && options.ns_method == "torch") return RuleKind::muon_clamped;
  if (type == "muon") return options.ns_method == "gram" ? RuleKind::muon_gram : RuleKind::muon;
  if (type == "adafactor")
    return options.factored ? RuleKind::adafactor_matrix : RuleKind::adafactor;
  if (options.momentum == 0) return RuleKind::sgd;
  return options.nesterov ? RuleKind::sgd_nesterov : RuleKind::sgd_momentum;
}

float initial_state(const OptimizerOptions& options) {
  return rule_kind(options) == RuleKind::adagrad
             ? static_cast<float>(options.initial_accumulator_value)
             : 0;
}

}  // namespace zero::optim
