// Element-wise formulas of the update rules, shared by every vector width and device. F is float or
// a vector of floats with + * / and fma, sqrt; each line rounds as written, so the caller compiles
// without contraction (CUDA: -fmad=false) and with correctly rounded division and sqrt. All are
// constexpr templates: nvcc compiles these in device code with --expt-relaxed-constexpr.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

namespace zero::optim {

// fma and sqrt of floats; vector types define both too.
using std::fma;
using std::sqrt;

// Factors of a call, in the order of use; computed once in double and rounded to fp32.
template <class F>
struct AdamFactors {
  F gradient_multiplier;
  F beta1, gradient_share;  // gradient_share = 1 - beta1
  F beta2, square_share;    // square_share = 1 - beta2
  F root_correction;        // 1 / sqrt(1 - beta2^step), or 1
  F epsilon;
  F decay;  // decoupled: -learning_rate * weight_decay; otherwise weight_decay
  F step;   // -learning_rate / (1 - beta1^step), or -learning_rate
};

// state: first and second moment. Decoupled is AdamW: the decay acts on the old parameter and is
// not added to the moments.
template <bool decoupled>
struct AdamRule {
  template <class F>
  using Factors = AdamFactors<F>;
  static constexpr int states = 2;

  template <class F>
  static constexpr void apply(const AdamFactors<F>& factors, F gradient, F& parameter, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    if constexpr (!decoupled) gradient = fma(factors.decay, parameter, gradient);
    state[0] = fma(factors.beta1, state[0], factors.gradient_share * gradient);
    state[1] = fma(factors.beta2, state[1], (factors.square_share * gradient) * gradient);
    const F denominator = fma(sqrt(state[1]), factors.root_correction, factors.epsilon);
    const F update = state[0] / denominator;
    if constexpr (decoupled) parameter = fma(factors.decay, parameter, parameter);
    parameter = fma(factors.step, update, parameter);
  }
};

template <class F>
struct SgdFactors {
  F gradient_multiplier;
  F weight_decay;
  F keep, take;  // of momentum and gradient: 0 and 1 at step 1, to start as the gradient
  F momentum;    // of nesterov's look-ahead, at every step
  F step;        // -learning_rate
};

enum class Momentum { none, plain, nesterov };

// state: the momentum, if any.
template <Momentum momentum>
struct SgdRule {
  template <class F>
  using Factors = SgdFactors<F>;
  static constexpr int states = momentum == Momentum::none ? 0 : 1;

  template <class F>
  static constexpr void apply(const SgdFactors<F>& factors, F gradient, F& parameter, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    gradient = fma(factors.weight_decay, parameter, gradient);
    if constexpr (momentum != Momentum::none)
      state[0] = fma(factors.keep, state[0], factors.take * gradient);
    if constexpr (momentum == Momentum::plain) gradient = state[0];
    if constexpr (momentum == Momentum::nesterov)
      gradient = fma(factors.momentum, state[0], gradient);
    parameter = fma(factors.step, gradient, parameter);
  }
};

constexpr float larger(float a, float b) {
  return a > b ? a : b;
}

constexpr float sign(float value) {
  return static_cast<float>(static_cast<int>(value > 0) - static_cast<int>(value < 0));
}

template <class F>
struct LionFactors {
  F gradient_multiplier;
  F beta1, gradient_share;  // of the direction
  F beta2, momentum_share;  // of the momentum; shares are 1 - beta
  F decay;                  // -learning_rate * weight_decay
  F step;                   // -learning_rate
};

// state: the momentum. The sign of zero is zero (Chen et al., 2023), but DeepSpeed's two versions
// step up and down there.
struct LionRule {
  template <class F>
  using Factors = LionFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr void apply(const LionFactors<F>& factors, F gradient, F& parameter, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    const F direction = fma(factors.beta1, state[0], factors.gradient_share * gradient);
    parameter = fma(factors.decay, parameter, parameter);
    parameter = fma(factors.step, sign(direction), parameter);
    state[0] = fma(factors.beta2, state[0], factors.momentum_share * gradient);
  }
};

template <class F>
struct AdagradFactors {
  F gradient_multiplier;
  F weight_decay;
  F epsilon;
  F step;  // -learning_rate / (1 + (step - 1) * lr_decay)
};

// state: the sum of squares.
struct AdagradRule {
  template <class F>
  using Factors = AdagradFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr void apply(const AdagradFactors<F>& factors, F gradient, F& parameter,
                              F* state) {
    gradient = gradient * factors.gradient_multiplier;
    gradient = fma(factors.weight_decay, parameter, gradient);
    state[0] = fma(gradient, gradient, state[0]);
    parameter = fma(factors.step, gradient / (sqrt(state[0]) + factors.epsilon), parameter);
  }
};

template <class F>
struct LambFactors {
  F gradient_multiplier;
  F beta1, gradient_share;
  F beta2, square_share;
  F epsilon;
  F weight_decay;
  F step;  // -learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step) * trust ratio of the tensor
};

// state: first and second moment. direct() updates both and returns the direction, whose norm the
// trust ratio needs; apply() recomputes the same direction and steps along it.
template <bool eps_inside_sqrt>
struct LambRule {
  template <class F>
  using Factors = LambFactors<F>;
  static constexpr int states = 2;

  template <class F>
  static constexpr F direct(const LambFactors<F>& factors, F gradient, F parameter, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    state[0] = fma(factors.beta1, state[0], factors.gradient_share * gradient);
    state[1] = fma(factors.beta2, state[1], (factors.square_share * gradient) * gradient);
    return direction(factors, parameter, state);
  }

  template <class F>
  static constexpr void apply(const LambFactors<F>& factors, F, F& parameter, F* state) {
    parameter = fma(factors.step, direction(factors, parameter, state), parameter);
  }

 private:
  template <class F>
  static constexpr F direction(const LambFactors<F>& factors, F parameter, const F* state) {
    F denominator = state[1];
    if constexpr (eps_inside_sqrt)
      denominator = sqrt(denominator + factors.epsilon);
    else
      denominator = sqrt(denominator) + factors.epsilon;
    return fma(factors.weight_decay, parameter, state[0] / denominator);
  }
};

// Returns the step relative to the tensor's size: |parameter| / |direction| within bounds, or 1 if
// either is zero.
constexpr double trust_ratio(double parameter_norm, double direction_norm, double least,
                             double most) {
  if (parameter_norm == 0 || direction_norm == 0) return 1;
  const double ratio = parameter_norm / direction_norm;
  return ratio > most ? most : ratio < least ? least : ratio;
}

template <class F>
struct MuonFactors {
  F gradient_multiplier;
  F momentum, gradient_share;  // gradient_share = 1 - momentum
  F decay;                     // -learning_rate * weight_decay
  F step;                      // -learning_rate * the matrix's scale
};

// state: the momentum. direct() returns the Nesterov direction of each element; the matrix of
// directions is made orthogonal, and passed to apply() in place of the gradient.
struct MuonRule {
  template <class F>
  using Factors = MuonFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr F direct(const MuonFactors<F>& factors, F gradient, F, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    state[0] = fma(factors.momentum, state[0], factors.gradient_share * gradient);
    return fma(factors.momentum, state[0], factors.gradient_share * gradient);
  }
};

// The second half of a step that is computed for whole tensors: along the direction, which takes
// the gradient's place.
template <template <class> class FactorsOfRule>
struct AlongDirectionRule {
  template <class F>
  using Factors = FactorsOfRule<F>;
  static constexpr int states = 0;

  template <class F>
  static constexpr void apply(const Factors<F>& factors, F direction, F& parameter, F*) {
    parameter = fma(factors.decay, parameter, parameter);
    parameter = fma(factors.step, direction, parameter);
  }
};

using MuonStepRule = AlongDirectionRule<MuonFactors>;

template <class F>
struct AdafactorFactors {
  F gradient_multiplier;
  F beta2, square_share;   // square_share = 1 - beta2
  F epsilon;               // added to squares
  F least_root;            // of the second moment
  F decay;                 // -learning_rate * weight_decay, or -weight_decay with scales_decay
  F step;                  // of the tensor
  F scales, scales_decay;  // 1 or 0: steps and decay are relative to the parameter, to the step
};

// For parameters of any shape, after the step and the decay of the tensor are known.
using AdafactorStepRule = AlongDirectionRule<AdafactorFactors>;

// For parameters with fewer than two dimensions; for matrices see factored_matrix.h. state: the
// second moment, updated by direct().
struct AdafactorRule {
  template <class F>
  using Factors = AdafactorFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr F direct(const AdafactorFactors<F>& factors, F gradient, F, F* state) {
    gradient = gradient * factors.gradient_multiplier;
    const F square = fma(gradient, gradient, factors.epsilon);
    state[0] = fma(factors.beta2, state[0], factors.square_share * square);
    return gradient / larger(sqrt(state[0]), factors.least_root);
  }

  template <class F>
  static constexpr void apply(const AdafactorFactors<F>& factors, F gradient, F& parameter,
                              F* state) {
    gradient = gradient * factors.gradient_multiplier;
    gradient = gradient / larger(sqrt(state[0]), factors.least_root);
    AdafactorStepRule::apply(factors, gradient, parameter, state);
  }
};

// Returns the multiplier of a gradient: `inverse_scale` averages and unscales, and the norm of the
// result is reduced to `limit` as in DeepSpeed's ZeRO stages; 0 or less: no limit.
constexpr double clipped_multiplier(double inverse_scale, double norm, double limit) {
  const double excess = limit > 0 ? (norm + 1e-6) / limit : 1;
  return excess > 1 ? inverse_scale / excess : inverse_scale;
}

// Rule numbers, for kernels that are chosen at run time.
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
  muon,             // with the standard iteration
  muon_gram,
  muon_clamped,  // the standard iteration, and torch.optim.Muon's multiplier
  adafactor,     // fewer than two dimensions
  adafactor_matrix,
};

// Returns the multiplier of a matrix of directions before orthogonalization.
constexpr float inverse_of_norm(RuleKind rule, double norm) {
  constexpr double least = 1e-7;
  if (rule != RuleKind::muon_clamped) norm += least;
  return static_cast<float>(1 / (norm < least ? least : norm));
}

// Returns the Factors of a rule from floats in the order of the struct.
template <class Rule, class F>
constexpr typename Rule::template Factors<F> factors_from(const float* factors) {
  constexpr auto count = sizeof(typename Rule::template Factors<float>) / sizeof(float);
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return typename Rule::template Factors<F>{F(factors[i])...};
  }
  (std::make_index_sequence<count>());
}

// Calls body.template operator()<Rule>() for a rule that sees tensor norms, and no factors.
template <class Body>
constexpr void with_tensor_rule(RuleKind kind, const Body& body) {
  if (kind == RuleKind::lamb) return body.template operator()<LambRule<false>>();
  if (kind == RuleKind::adafactor) return body.template operator()<AdafactorRule>();
  body.template operator()<LambRule<true>>();
}

template <class... Rules>
struct RuleList {};

// In the order of RuleKind; rules that see whole matrices by the second half of the step.
using AllRules =
    RuleList<AdamRule<true>, AdamRule<false>, SgdRule<Momentum::none>, SgdRule<Momentum::plain>,
             SgdRule<Momentum::nesterov>, LionRule, AdagradRule, LambRule<false>, LambRule<true>,
             MuonStepRule, MuonStepRule, MuonStepRule, AdafactorRule, AdafactorStepRule>;

// Calls body.template operator()<Rule>().
template <class Body>
constexpr void with_rule(RuleKind kind, const Body& body) {
  [&]<class... Rules>(RuleList<Rules...>) {
    int number = 0;
    ((static_cast<int>(kind) == number++ ? body.template operator()<Rules>() : void()), ...);
  }(AllRules());
}

}  // namespace zero::optim
