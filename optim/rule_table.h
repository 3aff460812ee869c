// Table of the update rules: a rule's name, the elements to see at once, states and options, and
// the factors of a step, computed from the options. update_rules.h has the formulas, by RuleKind;
// device_kernels.h applies the rules. Rules are independent of ranks and layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "optim/lr_schedule.h"
#include "optim/options.h"
#include "optim/update_rules.h"

namespace zero::optim {

// Scalars of a step for one parameter group. Equal on all ranks.
struct StepScalars {
  std::int64_t step = 1;            // applied steps, counted from 1: bias correction
  float learning_rate = 0;          // the group's
  float weight_decay = 0;           // the group's
  float gradient_multiplier = 1;    // unscale, average and clip in a single factor
  std::optional<Betas> betas = {};  // of this step, instead of the options'
  double step_scale = 1;            // of the tensor, if the rule has one
};

// Elements that a rule must see at once:
//   elements        any range
//   tensor_norms    the norms of a whole parameter and of its whole direction, before the step
//   tensor_factors  before these, the squares of each row and of each column of a whole matrix
//   whole_matrices  the directions of a whole matrix, orthogonalized before the step
enum class UpdateScope : std::uint8_t { elements, tensor_norms, tensor_factors, whole_matrices };

constexpr bool sees_norms(UpdateScope scope) {
  return scope == UpdateScope::tensor_norms || scope == UpdateScope::tensor_factors;
}

struct UpdateRule {
  RuleKind kind{};
  std::string_view name;
  UpdateScope scope{};
  // fp32 arrays per parameter element; names as in checkpoints ("exp_avg").
  std::vector<std::string_view> states;
  // The options shared by several rules that this rule has.
  bool betas = false, eps = false, momentum = false;
  // Writes the factors as plain floats, computed in double and rounded, in the order of the rule's
  // Factors struct; a TensorStep (tensor_step.h) follows.
  void (*write)(const OptimizerOptions&, const StepScalars&, float* factors) = nullptr;
};

const UpdateRule& rule_of(RuleKind kind);

RuleKind rule_kind(const OptimizerOptions& options);
inline const UpdateRule& rule_of(const OptimizerOptions& options) {
  return rule_of(rule_kind(options));
}

// Returns the initial value of every element of every state.
float initial_state(const OptimizerOptions& options);

inline constexpr int most_states = 2;
inline constexpr int most_factors = 16;

// Computes by binary powering, because pow differs between C libraries.
double power(double base, std::int64_t exponent);

}  // namespace zero::optim
