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

}  // namespace zero::optim
