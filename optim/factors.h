// Which update rule an optimizer's options mean, and its factors in a step: plain floats, computed
// in double once per call and rounded.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"
#include "optim/options.h"
#include "optim/update_rules.h"

namespace zero::optim {

constexpr bool sees_tensor_norms(RuleKind kind) {
  return kind == RuleKind::lamb || kind == RuleKind::lamb_eps_inside;
}

constexpr bool sees_matrices(RuleKind kind) {
  return kind == RuleKind::muon || kind == RuleKind::muon_gram;
}

// By binary powering: pow differs between C libraries.
double power(double base, std::int64_t exponent);

RuleKind rule_kind(const OptimizerOptions& options);

inline constexpr int most_factors = 16;

// Writes the rule's factors, in the order of its Factors struct; behind them what tensor_step.h
// says.
void write_factors(const OptimizerOptions& options, const StepScalars& scalars, float* factors);

// The Factors of a rule from floats, with the gradient multiplier in the first one's place.
template <class Rule>
constexpr auto factors_from(const float* factors, float multiplier) {
  auto result = factors_from<Rule, float>(factors);
  result.gradient_multiplier = multiplier;
  return result;
}

}  // namespace zero::optim
