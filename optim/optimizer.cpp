#include "optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "optim/cpu/kernels.h"
#include "optim/factors.h"
#include "zero/base/error.h"

namespace zero::optim {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

cpu::UpdateArrays check(const UpdateSpans& spans, std::size_t states) {
  if (spans.state.size() != states)
    throw UsageError("optimizer update: expected " + std::to_string(states) +
                     " state arrays, got " + std::to_string(spans.state.size()));
  if (spans.gradient_dtype == DType::int64)
    throw UsageError("optimizer update: gradients are fp32, bf16 or fp16, not int64");
  if (spans.parameter != nullptr && size_of(spans.parameter_dtype) != 2)
    throw UsageError(std::string("optimizer update: the parameter copy is bf16 or fp16, not ") +
                     name_of(spans.parameter_dtype));
  return {spans.count,        spans.gradient,  spans.gradient_dtype, spans.master,
          spans.state.data(), spans.parameter, spans.parameter_dtype};
}

class Adam : public Optimizer {
 public:
  explicit Adam(const OptimizerOptions& options)
      : options_(options), decoupled_(decouples_weight_decay(options)) {}

  std::string_view name() const override { return decoupled_ ? "AdamW" : "Adam"; }
  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 2> names = {"exp_avg", "exp_avg_sq"};
    return names;
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().adam(adam_factors(options_, scalars), decoupled_,
                        check(spans, state_names().size()));
  }

 private:
  OptimizerOptions options_;
  bool decoupled_;
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : options_(options),
        momentum_(options.momentum == 0 ? Momentum::none
                  : options.nesterov    ? Momentum::nesterov
                                        : Momentum::plain) {}

  std::string_view name() const override { return "SGD"; }
  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 1> names = {"momentum_buffer"};
    if (momentum_ == Momentum::none) return {};
    return names;
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().sgd(sgd_factors(options_, scalars), momentum_,
                       check(spans, state_names().size()));
  }

 private:
  OptimizerOptions options_;
  Momentum momentum_;
};

// One line per broken rule.
class Problems {
 public:
  void require(bool holds, const std::string& key, const std::string& expected, double got) {
    if (holds) return;
    if (!text_.empty()) text_ += '\n';
    text_ += "optimizer.params." + key + ": expected " + expected + ", got " + std::to_string(got);
  }
  void raise() const {
    if (!text_.empty()) throw ConfigError(text_);
  }

 private:
  std::string text_;
};

void check_adam(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.beta1 >= 0 && options.beta1 < 1, "betas[0]", "0 <= beta < 1",
                   options.beta1);
  problems.require(options.beta2 >= 0 && options.beta2 < 1, "betas[1]", "0 <= beta < 1",
                   options.beta2);
  problems.require(options.epsilon >= 0, "eps", "0 or more", options.epsilon);
}

void check_sgd(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.momentum >= 0, "momentum", "0 or more", options.momentum);
  if (!options.nesterov) return;
  problems.require(options.momentum > 0, "momentum", "more than 0 with nesterov", options.momentum);
  problems.require(options.dampening == 0, "dampening", "0 with nesterov", options.dampening);
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

bool decouples_weight_decay(const OptimizerOptions& options) {
  return lower(options.type) == "adamw" || options.adam_w_mode;
}

AdamFactors<float> adam_factors(const OptimizerOptions& options, const StepScalars& scalars) {
  const bool corrects = options.bias_correction;
  const double first = corrects ? 1 - power(options.beta1, scalars.step) : 1;
  const double second = corrects ? 1 - power(options.beta2, scalars.step) : 1;
  const double rate = scalars.learning_rate;
  const double decay =
      decouples_weight_decay(options) ? -rate * scalars.weight_decay : scalars.weight_decay;
  return {.gradient_multiplier = scalars.gradient_multiplier,
          .beta1 = static_cast<float>(options.beta1),
          .gradient_share = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .square_share = static_cast<float>(1 - options.beta2),
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

std::unique_ptr<Optimizer> create_optimizer(const OptimizerOptions& options) {
  const std::string type = lower(options.type);
  const bool adam = type == "adam" || type == "adamw";
  if (!adam && type != "sgd")
    throw ConfigError("optimizer.type: unknown \"" + options.type +
                      "\"; expected AdamW, Adam or SGD");
  Problems problems;
  problems.require(options.learning_rate >= 0, "lr", "0 or more", options.learning_rate);
  problems.require(options.weight_decay >= 0, "weight_decay", "0 or more", options.weight_decay);
  if (adam)
    check_adam(options, problems);
  else
    check_sgd(options, problems);
  problems.raise();
  if (adam) return std::make_unique<Adam>(options);
  return std::make_unique<Sgd>(options);
}

}  // namespace zero::optim
