#include "optim/rule_table.h"

#include <cmath>
#include <cstring>

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

template <class Factors>
void write(const Factors& values, float* factors) {
  static_assert(sizeof values <= most_factors * sizeof(float));
  std::memcpy(factors, &values, sizeof values);
}

template <auto factors_of>
void write_plain(const OptimizerOptions& options, const StepScalars& scalars, float* factors) {
  write(factors_of(options, scalars), factors);
}

void write_lamb(const OptimizerOptions& options, const StepScalars& scalars, float* factors) {
  static_assert(sizeof(LambFactors<float>) <= tensor_step_at * sizeof(float));
  static_assert(tensor_step_at + tensor_step_floats <= most_factors);
  write(lamb_factors(options, scalars), factors);
  write(TensorStep{lamb_rate(options, scalars), options.min_coeff, options.max_coeff},
        factors + tensor_step_at);
}

void write_muon(const OptimizerOptions& options, const StepScalars& scalars, float* factors) {
  static_assert(sizeof(MuonFactors<float>) <= tensor_step_at * sizeof(float));
  write(muon_factors(options, scalars), factors);
  write(TensorStep{scalars.learning_rate, 1, 1}, factors + tensor_step_at);
}

using enum RuleKind;
using enum UpdateScope;
constexpr bool yes = true, no = false;

// In the order of RuleKind; betas, eps, momentum.
const UpdateRule table[] = {
    {adamw, "AdamW", elements, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write_plain<adam_factors>},
    {adam, "Adam", elements, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write_plain<adam_factors>},
    {sgd, "SGD", elements, {}, no, no, yes, write_plain<sgd_factors>},
    {sgd_momentum, "SGD", elements, {"momentum_buffer"}, no, no, yes, write_plain<sgd_factors>},
    {sgd_nesterov, "SGD", elements, {"momentum_buffer"}, no, no, yes, write_plain<sgd_factors>},
    {lion, "Lion", elements, {"exp_avg"}, yes, no, no, write_plain<lion_factors>},
    {adagrad, "Adagrad", elements, {"sum"}, no, yes, no, write_plain<adagrad_factors>},
    {lamb, "Lamb", tensor_norms, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write_lamb},
    {lamb_eps_inside, "Lamb", tensor_norms, {"exp_avg", "exp_avg_sq"}, yes, yes, no, write_lamb},
    {muon, "Muon", whole_matrices, {"momentum_buffer"}, no, no, yes, write_muon},
    {muon_gram, "Muon", whole_matrices, {"momentum_buffer"}, no, no, yes, write_muon},
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
  if (type == "muon") return options.ns_method == "gram" ? RuleKind::muon_gram : RuleKind::muon;
  if (options.momentum == 0) return RuleKind::sgd;
  return options.nesterov ? RuleKind::sgd_nesterov : RuleKind::sgd_momentum;
}

float initial_state(const OptimizerOptions& options) {
  return rule_kind(options) == RuleKind::adagrad
             ? static_cast<float>(options.initial_accumulator_value)
             : 0;
}

}  // namespace zero::optim
