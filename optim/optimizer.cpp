#include "optim/optimizer.h"

#include <array>
#include <cmath>
#include <stdexcept>

#include "optim/cpu/kernels.h"
#include "optim/factors.h"
#include "optim/orthogonalize.h"
#include "zero/base/error.h"

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

using Names = std::span<const std::string_view>;

Names two_moments() {
  static constexpr std::array<std::string_view, 2> names = {"exp_avg", "exp_avg_sq"};
  return names;
}

Names momentum_buffer() {
  static constexpr std::array<std::string_view, 1> names = {"momentum_buffer"};
  return names;
}

// What the rules share: their options.
class Rule : public Optimizer {
 public:
  explicit Rule(const OptimizerOptions& options) : options_(options) {}

 protected:
  OptimizerOptions options_;
};

class Adam : public Rule {
 public:
  explicit Adam(const OptimizerOptions& options)
      : Rule(options), decoupled_(decouples_weight_decay(options)) {}

  std::string_view name() const override { return decoupled_ ? "AdamW" : "Adam"; }
  Names state_names() const override { return two_moments(); }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().adam(adam_factors(options_, scalars), decoupled_, check(spans, 2));
  }

 private:
  bool decoupled_;
};

class Sgd : public Rule {
 public:
  explicit Sgd(const OptimizerOptions& options)
      : Rule(options),
        momentum_(options.momentum == 0 ? Momentum::none
                  : options.nesterov    ? Momentum::nesterov
                                        : Momentum::plain) {}

  std::string_view name() const override { return "SGD"; }
  Names state_names() const override {
    return momentum_ == Momentum::none ? Names{} : momentum_buffer();
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().sgd(sgd_factors(options_, scalars), momentum_,
                       check(spans, state_names().size()));
  }

 private:
  Momentum momentum_;
};

class Lion : public Rule {
 public:
  using Rule::Rule;
  std::string_view name() const override { return "Lion"; }
  Names state_names() const override { return two_moments().first(1); }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().lion(lion_factors(options_, scalars), check(spans, 1));
  }
};

class Adagrad : public Rule {
 public:
  using Rule::Rule;
  std::string_view name() const override { return "Adagrad"; }
  Names state_names() const override {
    static constexpr std::array<std::string_view, 1> names = {"sum"};
    return names;
  }
  float initial_state() const override {
    return static_cast<float>(options_.initial_accumulator_value);
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().adagrad(adagrad_factors(options_, scalars), check(spans, 1));
  }
};

class Lamb : public Rule {
 public:
  using Rule::Rule;
  std::string_view name() const override { return "Lamb"; }
  UpdateScope scope() const override { return UpdateScope::tensor_norms; }
  Names state_names() const override { return two_moments(); }
  void direction(const StepScalars& scalars, const UpdateSpans& spans,
                 float* directions) const override {
    cpu::kernels().lamb_direction(lamb_factors(options_, scalars), options_.eps_inside_sqrt,
                                  check(spans, 2), directions);
  }
  double step_scale(double parameter_norm, double direction_norm) const override {
    return trust_ratio(parameter_norm, direction_norm, options_.min_coeff, options_.max_coeff);
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    cpu::kernels().lamb(lamb_factors(options_, scalars), options_.eps_inside_sqrt, check(spans, 2));
  }
};

class Muon : public Rule {
 public:
  explicit Muon(const OptimizerOptions& options)
      : Rule(options),
        iteration_(options.ns_method == "gram" ? NewtonSchulz::gram : NewtonSchulz::standard) {}

  std::string_view name() const override { return "Muon"; }
  UpdateScope scope() const override { return UpdateScope::whole_matrices; }
  Names state_names() const override { return momentum_buffer(); }
  void direction(const StepScalars& scalars, const UpdateSpans& spans,
                 float* directions) const override {
    cpu::kernels().muon_direction(muon_factors(options_, scalars), check(spans, 1), directions);
  }
  std::int64_t scratch_elements(const MatrixShape& shape) const override {
    return optim::scratch_elements(iteration_, shape);
  }
  void orthogonalize(const MatrixShape& shape, float* matrix, float* scratch,
                     ThreadPool& pool) const override {
    optim::orthogonalize(iteration_, shape, matrix, scratch, pool);
  }
  void update(const StepScalars& scalars, const UpdateSpans& spans) const override {
    UpdateSpans without_state = spans;  // direction() has moved it
    without_state.state = {};
    cpu::kernels().muon(muon_factors(options_, scalars), check(without_state, 0));
  }

 private:
  NewtonSchulz iteration_;
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

template <class T>
std::unique_ptr<Optimizer> make(const OptimizerOptions& options) {
  return std::make_unique<T>(options);
}

struct Type {
  std::string_view name;
  std::unique_ptr<Optimizer> (*create)(const OptimizerOptions&);
  void (*check)(const OptimizerOptions&, Problems&);
};

constexpr auto nothing_more = [](const OptimizerOptions&, Problems&) {};
constexpr Type types[] = {
    {"adamw", make<Adam>, nothing_more},       {"adam", make<Adam>, nothing_more},
    {"lamb", make<Lamb>, check_lamb},          {"lion", make<Lion>, nothing_more},
    {"adagrad", make<Adagrad>, check_adagrad}, {"sgd", make<Sgd>, check_sgd},
    {"muon", make<Muon>, check_muon},
};

}  // namespace

void Optimizer::direction(const StepScalars&, const UpdateSpans&, float*) const {
  throw std::logic_error(std::string(name()) + " has no direction apart from its update");
}
double Optimizer::step_scale(double, double) const {
  return 1;
}
std::int64_t Optimizer::scratch_elements(const MatrixShape&) const {
  return 0;
}
void Optimizer::orthogonalize(const MatrixShape&, float*, float*, ThreadPool&) const {
  throw std::logic_error(std::string(name()) + " does not work on matrices");
}

std::unique_ptr<Optimizer> create_optimizer(const OptimizerOptions& options) {
  const std::string name = lower_case(options.type);
  for (const Type& type : types) {
    if (type.name != name) continue;
    Problems problems;
    check_common(options, problems);
    type.check(options, problems);
    problems.raise();
    return type.create(options);
  }
  throw ConfigError("optimizer.type: unknown \"" + options.type +
                    "\"; expected AdamW, Adam, Lamb, Lion, Adagrad, SGD or Muon");
}

}  // namespace zero::optim
