// The element-wise formulas of the update rules, the one definition for every vector width and
// device. F is float or a vector of floats with + * / and fma, sqrt; each line rounds as it is
// written, so the caller compiles without contraction (CUDA: -fmad=false) and with correctly
// rounded division and sqrt. All are constexpr templates: nvcc takes them in device code with
// --expt-relaxed-constexpr.
#pragma once

#include <cmath>

namespace zero::optim {

// Of one call, in the order of use; computed in double, once, and rounded to fp32.
template <class F>
struct AdamFactors {
  F gradient_multiplier;
  F beta1, gradient_share;  // gradient_share = 1 - beta1
  F beta2, square_share;    // square_share = 1 - beta2
  F root_correction;        // 1 / sqrt(1 - beta2^step), or 1
  F epsilon;
  F decay;  // decoupled: -learning_rate * weight_decay; else weight_decay
  F step;   // -learning_rate / (1 - beta1^step), or -learning_rate
};

template <class F>
constexpr AdamFactors<F> broadcast(const AdamFactors<float>& from) {
  return {F(from.gradient_multiplier),
          F(from.beta1),
          F(from.gradient_share),
          F(from.beta2),
          F(from.square_share),
          F(from.root_correction),
          F(from.epsilon),
          F(from.decay),
          F(from.step)};
}

// state: first and second moment. Decoupled is AdamW: the decay acts on the old parameter and stays
// out of the moments.
template <bool decoupled>
struct AdamRule {
  template <class F>
  using Factors = AdamFactors<F>;
  static constexpr int states = 2;

  template <class F>
  static constexpr void apply(const AdamFactors<F>& factors, F gradient, F& parameter, F* state) {
    using std::fma;
    using std::sqrt;
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
  F keep, take;  // of the momentum and of the gradient: 0 and 1 at step 1, so that it starts as the
                 // gradient
  F momentum;    // nesterov looks ahead with it at every step
  F step;        // -learning_rate
};

template <class F>
constexpr SgdFactors<F> broadcast(const SgdFactors<float>& from) {
  return {F(from.gradient_multiplier),
          F(from.weight_decay),
          F(from.keep),
          F(from.take),
          F(from.momentum),
          F(from.step)};
}

enum class Momentum { none, plain, nesterov };

// state: the momentum, where there is one.
template <Momentum momentum>
struct SgdRule {
  template <class F>
  using Factors = SgdFactors<F>;
  static constexpr int states = momentum == Momentum::none ? 0 : 1;

  template <class F>
  static constexpr void apply(const SgdFactors<F>& factors, F gradient, F& parameter, F* state) {
    using std::fma;
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

template <class F>
constexpr LionFactors<F> broadcast(const LionFactors<float>& from) {
  return {F(from.gradient_multiplier),
          F(from.beta1),
          F(from.gradient_share),
          F(from.beta2),
          F(from.momentum_share),
          F(from.decay),
          F(from.step)};
}

// state: the momentum. The sign of zero is zero (Chen and others, 2023): DeepSpeed's two versions
// step up and down there.
struct LionRule {
  template <class F>
  using Factors = LionFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr void apply(const LionFactors<F>& factors, F gradient, F& parameter, F* state) {
    using std::fma;
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

template <class F>
constexpr AdagradFactors<F> broadcast(const AdagradFactors<float>& from) {
  return {F(from.gradient_multiplier), F(from.weight_decay), F(from.epsilon), F(from.step)};
}

// state: the sum of squares.
struct AdagradRule {
  template <class F>
  using Factors = AdagradFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr void apply(const AdagradFactors<F>& factors, F gradient, F& parameter,
                              F* state) {
    using std::fma;
    using std::sqrt;
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

template <class F>
constexpr LambFactors<F> broadcast(const LambFactors<float>& from) {
  return {F(from.gradient_multiplier), F(from.beta1),   F(from.gradient_share), F(from.beta2),
          F(from.square_share),        F(from.epsilon), F(from.weight_decay),   F(from.step)};
}

// state: first and second moment. direct() moves them and gives the direction, whose norm the trust
// ratio needs; apply() finds the same direction again and steps along it.
template <bool eps_inside_sqrt>
struct LambRule {
  template <class F>
  using Factors = LambFactors<F>;
  static constexpr int states = 2;

  template <class F>
  static constexpr F direct(const LambFactors<F>& factors, F gradient, F parameter, F* state) {
    using std::fma;
    gradient = gradient * factors.gradient_multiplier;
    state[0] = fma(factors.beta1, state[0], factors.gradient_share * gradient);
    state[1] = fma(factors.beta2, state[1], (factors.square_share * gradient) * gradient);
    return direction(factors, parameter, state);
  }

  template <class F>
  static constexpr void apply(const LambFactors<F>& factors, F, F& parameter, F* state) {
    using std::fma;
    parameter = fma(factors.step, direction(factors, parameter, state), parameter);
  }

 private:
  template <class F>
  static constexpr F direction(const LambFactors<F>& factors, F parameter, const F* state) {
    using std::fma;
    using std::sqrt;
    F denominator = state[1];
    if constexpr (eps_inside_sqrt)
      denominator = sqrt(denominator + factors.epsilon);
    else
      denominator = sqrt(denominator) + factors.epsilon;
    return fma(factors.weight_decay, parameter, state[0] / denominator);
  }
};

// How far a tensor moves for its own size: |parameter| / |direction| within bounds, 1 where either
// is zero.
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

template <class F>
constexpr MuonFactors<F> broadcast(const MuonFactors<float>& from) {
  return {F(from.gradient_multiplier), F(from.momentum), F(from.gradient_share), F(from.decay),
          F(from.step)};
}

// state: the momentum. direct() gives the Nesterov direction of each element; the matrix of them is
// made orthogonal, and apply() steps along that, which comes in place of the gradient.
struct MuonRule {
  template <class F>
  using Factors = MuonFactors<F>;
  static constexpr int states = 1;

  template <class F>
  static constexpr F direct(const MuonFactors<F>& factors, F gradient, F, F* state) {
    using std::fma;
    gradient = gradient * factors.gradient_multiplier;
    state[0] = fma(factors.momentum, state[0], factors.gradient_share * gradient);
    return fma(factors.momentum, state[0], factors.gradient_share * gradient);
  }
};

struct MuonStepRule {
  template <class F>
  using Factors = MuonFactors<F>;
  static constexpr int states = 0;

  template <class F>
  static constexpr void apply(const MuonFactors<F>& factors, F direction, F& parameter, F*) {
    using std::fma;
    parameter = fma(factors.decay, parameter, parameter);
    parameter = fma(factors.step, direction, parameter);
  }
};

// What a gradient is multiplied with: `inverse_scale` averages and unscales, and the norm of the
// result is brought down to `limit` as DeepSpeed's ZeRO stages do; 0 or less: no limit.
constexpr double clipped_multiplier(double inverse_scale, double norm, double limit) {
  const double excess = limit > 0 ? (norm + 1e-6) / limit : 1;
  return excess > 1 ? inverse_scale / excess : inverse_scale;
}

}  // namespace zero::optim
