#include "optim/rule_kind.h"

#include <cstring>

#include "optim/device_step.h"
#include "optim/factors.h"
#include "optim/tensor_step.h"

namespace zero::optim {

namespace {

template <class Factors>
void write(const Factors& values, float* factors) {
  static_assert(sizeof values <= most_factors * sizeof(float));
  std::memcpy(factors, &values, sizeof values);
}

}  // namespace

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

void write_factors(const OptimizerOptions& options, const StepScalars& scalars, float* factors) {
  switch (rule_kind(options)) {
    case RuleKind::adamw:
    case RuleKind::adam:
      return write(adam_factors(options, scalars), factors);
    case RuleKind::sgd:
    case RuleKind::sgd_momentum:
    case RuleKind::sgd_nesterov:
      return write(sgd_factors(options, scalars), factors);
    case RuleKind::lion:
      return write(lion_factors(options, scalars), factors);
    case RuleKind::adagrad:
      return write(adagrad_factors(options, scalars), factors);
    case RuleKind::lamb:
    case RuleKind::lamb_eps_inside: {
      static_assert(sizeof(LambFactors<float>) <= tensor_step_at * sizeof(float));
      static_assert(tensor_step_at + tensor_step_floats <= most_factors);
      write(lamb_factors(options, scalars), factors);
      return write(TensorStep{lamb_rate(options, scalars), options.min_coeff, options.max_coeff},
                   factors + tensor_step_at);
    }
    case RuleKind::muon:
    case RuleKind::muon_gram:
      static_assert(sizeof(MuonFactors<float>) <= tensor_step_at * sizeof(float));
      write(muon_factors(options, scalars), factors);
      return write(TensorStep{scalars.learning_rate, 1, 1}, factors + tensor_step_at);
  }
}

}  // namespace zero::optim
