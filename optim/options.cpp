#include "optim/options.h"

#include <utility>

#include "optim/option_problems.h"
#include "optim/rule_table.h"
#include "zero/base/text.h"

namespace zero::optim {

namespace {

void check_common(const OptimizerOptions& options, OptionProblems& problems) {
  problems.require_not_negative("lr", options.learning_rate);
  problems.require_not_negative("muon_lr", options.muon_lr.value_or(0));
  problems.require_not_negative("adam_lr", options.adam_lr.value_or(0));
  problems.require_not_negative("weight_decay", options.weight_decay);
  for (const auto& [key, beta] :
       {std::pair{"betas[0]", options.beta1}, std::pair{"betas[1]", options.beta2}})
    problems.require(beta >= 0 && beta < 1, key, "0 <= beta < 1", beta);
  problems.require_not_negative("eps", options.epsilon);
}

// Checks the options of a single type.
void check_own(const std::string& type, const OptimizerOptions& options, OptionProblems& problems) {
  if (type == "sgd") {
    problems.require_not_negative("momentum", options.momentum);
    if (!options.nesterov) return;
    problems.require(options.momentum > 0, "momentum", "more than 0 with nesterov",
                     options.momentum);
    problems.require(options.dampening == 0, "dampening", "0 with nesterov", options.dampening);
  } else if (type == "adagrad") {
    problems.require_not_negative("lr_decay", options.lr_decay);
    problems.require_not_negative("initial_accumulator_value", options.initial_accumulator_value);
  } else if (type == "lamb") {
    problems.require_not_negative("min_coeff", options.min_coeff);
    problems.require(options.max_coeff >= options.min_coeff, "max_coeff", "min_coeff or more",
                     options.max_coeff);
  } else if (type == "muon") {
    problems.require(options.momentum >= 0 && options.momentum < 1, "momentum", "0 <= momentum < 1",
                     options.momentum);
    const bool known = options.ns_method == "gram" || options.ns_method == "standard" ||
                       options.ns_method == "torch";
    problems.require(known, "ns_method", "gram or standard", options.ns_method);
  } else if (type == "adafactor") {
    // The square of a smaller value is 0 in fp32, and an element without gradients would then have
    // no step.
    constexpr double least_eps1 = 1e-18, least_summand = 1e-36;
    problems.require(options.beta2_decay <= 0, "beta2_decay", "0 or less", options.beta2_decay);
    const double least = options.transformers_form ? least_summand : least_eps1;
    problems.require(options.eps1.value_or(least) >= least, "eps1",
                     options.transformers_form ? "1e-36 or more" : "1e-18 or more",
                     options.eps1.value_or(least));
    problems.require_not_negative("eps2", options.eps2);
    problems.require(options.d >= 1, "d", "1 or more", options.d);
  } else if (type != "adamw" && type != "adam" && type != "lion") {
    throw ConfigError("optimizer.type: unknown \"" + options.type +
                      "\"; expected AdamW, Adam, Lamb, Lion, Adagrad, SGD, Muon or Adafactor");
  }
}

}  // namespace

void check_options(const OptimizerOptions& options) {
  OptionProblems problems("optimizer.params.");
  check_common(options, problems);
  check_own(lower_case(options.type), options, problems);
  problems.throw_if_any();
}

OptimizerOptions default_options(const std::string& type) {
  OptimizerOptions options;
  options.type = type;
  const std::string name = lower_case(type);
  if (name == "adagrad") {
    options.learning_rate = 1e-2;
    options.epsilon = 1e-10;
  }
  if (name == "muon") {
    options.learning_rate = 0.02;
    options.adam_lr = 3e-4;
    options.momentum = 0.95;
    options.beta2 = 0.95;
    options.epsilon = 1e-10;
  }
  if (name == "adafactor") options.learning_rate = 1e-2;
  return options;
}

bool has_betas(const OptimizerOptions& options) {
  return rule_of(options).betas;
}

bool has_auxiliary_rule(const OptimizerOptions& options) {
  return lower_case(options.type) == "muon";
}

OptimizerOptions options_of_rule(const OptimizerOptions& options, bool auxiliary) {
  OptimizerOptions result = options;
  result.factored = !auxiliary;
  if (!has_auxiliary_rule(options)) return result;
  result.learning_rate =
      (auxiliary ? options.adam_lr : options.muon_lr).value_or(options.learning_rate);
  if (auxiliary) result.type = "Adam";
  return result;
}

bool takes_matrix_rule(std::string_view parameter_name) {
  const std::string name = lower_case(parameter_name);
  return name.find("embed") == std::string::npos && name.find("lm_head") == std::string::npos;
}

bool decouples_weight_decay(const OptimizerOptions& options) {
  return lower_case(options.type) == "adamw" || options.adam_w_mode;
}

}  // namespace zero::optim
