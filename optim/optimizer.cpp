#include "optim/optimizer.h"

#include <cmath>
#include <stdexcept>

#include "optim/cpu/kernels.h"
#include "optim/factors.h"
#include "optim/orthogonalize.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::optim {

namespace {

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

struct Traits {
  std::string_view name;
  UpdateScope scope;
  std::vector<std::string_view> states;
};

// Of the rules in the order of RuleKind.
const Traits& traits_of(RuleKind kind) {
  using enum UpdateScope;
  static const Traits traits[] = {
      {"AdamW", elements, {"exp_avg", "exp_avg_sq"}},
      {"Adam", elements, {"exp_avg", "exp_avg_sq"}},
      {"SGD", elements, {}},
      {"SGD", elements, {"momentum_buffer"}},
      {"SGD", elements, {"momentum_buffer"}},
      {"Lion", elements, {"exp_avg"}},
      {"Adagrad", elements, {"sum"}},
      {"Lamb", tensor_norms, {"exp_avg", "exp_avg_sq"}},
      {"Lamb", tensor_norms, {"exp_avg", "exp_avg_sq"}},
      {"Muon", whole_matrices, {"momentum_buffer"}},
      {"Muon", whole_matrices, {"momentum_buffer"}},
  };
  return traits[static_cast<int>(kind)];
}

NewtonSchulz iteration_of(RuleKind kind) {
  return kind == RuleKind::muon_gram ? NewtonSchulz::gram : NewtonSchulz::standard;
}

struct Factors {
  Factors(const OptimizerOptions& options, const StepScalars& scalars) {
    write_factors(options, scalars, values);
  }
  float values[most_factors];
};

// One line per broken rule.
class Problems {
 public:
  void require(bool holds, const std::string& key, const std::string& expected, double got) {
    require(holds, key, expected, std::to_string(got));
  }
  void require(bool holds, const std::string& key, const std::string& expected,
               const std::string& got) {
    if (holds) return;
    if (!text_.empty()) text_ += '\n';
    text_ += "optimizer.params." + key + ": expected " + expected + ", got " + got;
  }
  void raise() const {
    if (!text_.empty()) throw ConfigError(text_);
  }

 private:
  std::string text_;
};

void check_common(const OptimizerOptions& options, Problems& problems) {
  const auto not_negative = [&](const char* key, double value) {
    problems.require(value >= 0, key, "0 or more", value);
  };
  not_negative("lr", options.learning_rate);
  not_negative("muon_lr", options.muon_lr.value_or(0));
  not_negative("adam_lr", options.adam_lr.value_or(0));
  not_negative("weight_decay", options.weight_decay);
  for (const auto& [key, beta] :
       {std::pair{"betas[0]", options.beta1}, std::pair{"betas[1]", options.beta2}})
    problems.require(beta >= 0 && beta < 1, key, "0 <= beta < 1", beta);
  not_negative("eps", options.epsilon);
}

void check_sgd(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.momentum >= 0, "momentum", "0 or more", options.momentum);
  if (!options.nesterov) return;
  problems.require(options.momentum > 0, "momentum", "more than 0 with nesterov", options.momentum);
  problems.require(options.dampening == 0, "dampening", "0 with nesterov", options.dampening);
}

void check_adagrad(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.lr_decay >= 0, "lr_decay", "0 or more", options.lr_decay);
  problems.require(options.initial_accumulator_value >= 0, "initial_accumulator_value", "0 or more",
                   options.initial_accumulator_value);
}

void check_lamb(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.min_coeff >= 0, "min_coeff", "0 or more", options.min_coeff);
  problems.require(options.max_coeff >= options.min_coeff, "max_coeff", "min_coeff or more",
                   options.max_coeff);
}

void check_muon(const OptimizerOptions& options, Problems& problems) {
  problems.require(options.momentum >= 0 && options.momentum < 1, "momentum", "0 <= momentum < 1",
                   options.momentum);
  problems.require(options.ns_method == "gram" || options.ns_method == "standard", "ns_method",
                   "gram or standard", options.ns_method);
}

// Of the options that one type alone has.
void check_own(const std::string& type, const OptimizerOptions& options, Problems& problems) {
  if (type == "sgd") return check_sgd(options, problems);
  if (type == "adagrad") return check_adagrad(options, problems);
  if (type == "lamb") return check_lamb(options, problems);
  if (type == "muon") return check_muon(options, problems);
  if (type != "adamw" && type != "adam" && type != "lion")
    throw ConfigError("optimizer.type: unknown \"" + options.type +
                      "\"; expected AdamW, Adam, Lamb, Lion, Adagrad, SGD or Muon");
}

}  // namespace

Optimizer::Optimizer(const OptimizerOptions& options)
    : options_(options), kind_(rule_kind(options)) {
  Problems problems;
  check_common(options, problems);
  check_own(lower_case(options.type), options, problems);
  problems.raise();
}

std::string_view Optimizer::name() const {
  return traits_of(kind_).name;
}

UpdateScope Optimizer::scope() const {
  return traits_of(kind_).scope;
}

std::span<const std::string_view> Optimizer::state_names() const {
  return traits_of(kind_).states;
}

float Optimizer::initial_state() const {
  return kind_ == RuleKind::adagrad ? static_cast<float>(options_.initial_accumulator_value) : 0;
}

void Optimizer::update(const StepScalars& scalars, const UpdateSpans& spans) const {
  // direction() has moved the states of such a rule.
  const std::size_t states = sees_matrices(kind_) ? spans.state.size() : state_names().size();
  cpu::kernels().update(kind_, Factors(options_, scalars).values, check(spans, states));
}

void Optimizer::direction(const StepScalars& scalars, const UpdateSpans& spans,
                          float* directions) const {
  if (scope() == UpdateScope::elements)
    throw std::logic_error(std::string(name()) + " has no direction apart from its update");
  cpu::kernels().direct(kind_, Factors(options_, scalars).values,
                        check(spans, state_names().size()), directions);
}

double Optimizer::step_scale(double parameter_norm, double direction_norm) const {
  return trust_ratio(parameter_norm, direction_norm, options_.min_coeff, options_.max_coeff);
}

std::int64_t Optimizer::scratch_elements(const MatrixShape& shape) const {
  return optim::scratch_elements(iteration_of(kind_), shape);
}

void Optimizer::orthogonalize(const MatrixShape& shape, float* matrix, float* scratch,
                              ThreadPool& pool) const {
  optim::orthogonalize(iteration_of(kind_), shape, matrix, scratch, pool);
}

std::unique_ptr<Optimizer> create_optimizer(const OptimizerOptions& options) {
  return std::make_unique<Optimizer>(options);
}

}  // namespace zero::optim
