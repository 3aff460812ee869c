// The update rules that devices have, by number, for devices whose kernels are chosen at run time,
// with their factors as plain floats.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "optim/optimizer.h"
#include "optim/options.h"
#include "optim/update_rules.h"

namespace zero::optim {

enum class RuleKind : std::uint8_t {
  adamw,
  adam,
  sgd,
  sgd_momentum,
  sgd_nesterov,
  lion,
  adagrad,
  lamb,
  lamb_eps_inside,  // of the square root
  muon,             // by the standard iteration
  muon_gram,
};

constexpr bool sees_tensor_norms(RuleKind kind) {
  return kind == RuleKind::lamb || kind == RuleKind::lamb_eps_inside;
}

constexpr bool sees_matrices(RuleKind kind) {
  return kind == RuleKind::muon || kind == RuleKind::muon_gram;
}

RuleKind rule_kind(const OptimizerOptions& options);

// Writes the rule's factors, in the order of its Factors struct; behind them what tensor_step.h
// says.
void write_factors(const OptimizerOptions& options, const StepScalars& scalars, float* factors);

// The Factors of a rule from floats, with the gradient multiplier in the first one's place.
template <class Rule>
constexpr typename Rule::template Factors<float> factors_from(const float* factors,
                                                              float multiplier) {
  using Factors = typename Rule::template Factors<float>;
  std::array<float, sizeof(Factors) / sizeof(float)> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = factors[i];
  values[0] = multiplier;
  return std::bit_cast<Factors>(values);
}

// Calls body.template operator()<Rule>() for a rule that sees tensor norms.
template <class Body>
constexpr void with_tensor_rule(RuleKind kind, const Body& body) {
  if (kind == RuleKind::lamb) return body.template operator()<LambRule<false>>();
  body.template operator()<LambRule<true>>();
}

// Calls body.template operator()<Rule>(); for rules that see whole matrices with their last half.
template <class Body>
constexpr void with_rule(RuleKind kind, const Body& body) {
  switch (kind) {
    case RuleKind::adamw:
      return body.template operator()<AdamRule<true>>();
    case RuleKind::adam:
      return body.template operator()<AdamRule<false>>();
    case RuleKind::sgd:
      return body.template operator()<SgdRule<Momentum::none>>();
    case RuleKind::sgd_momentum:
      return body.template operator()<SgdRule<Momentum::plain>>();
    case RuleKind::sgd_nesterov:
      return body.template operator()<SgdRule<Momentum::nesterov>>();
    case RuleKind::lion:
      return body.template operator()<LionRule>();
    case RuleKind::adagrad:
      return body.template operator()<AdagradRule>();
    case RuleKind::lamb:
    case RuleKind::lamb_eps_inside:
      return with_tensor_rule(kind, body);
    case RuleKind::muon:
    case RuleKind::muon_gram:
      return body.template operator()<MuonStepRule>();
  }
}

}  // namespace zero::optim
