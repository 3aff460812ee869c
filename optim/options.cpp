#include "optim/options.h"

#include "zero/base/text.h"

namespace zero::optim {

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
  return options;
}

OptimizerTraits traits_of(const OptimizerOptions& options) {
  const std::string type = lower_case(options.type);
  if (type == "sgd" || type == "muon") return {.momentum = true};
  if (type == "adagrad") return {.eps = true};
  if (type == "lion") return {.betas = true};
  return {.betas = true, .eps = true};
}

bool has_auxiliary_rule(const OptimizerOptions& options) {
  return lower_case(options.type) == "muon";
}

OptimizerOptions options_of_rule(const OptimizerOptions& options, bool auxiliary) {
  OptimizerOptions result = options;
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
