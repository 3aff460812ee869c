// Steps of rules that see whole tensors, computed on the device: the sums of two norms, added up
// over ranks, and the step derived from them. Constexpr, as in square_sum.h.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "optim/square_sum.h"
#include "optim/update_rules.h"

namespace zero::optim {

struct TensorSums {
  NormSum parameter, direction;
};
inline constexpr int tensor_sum_words = sizeof(TensorSums) / 8;

// Stored after the factors of a rule, if the rule sees whole tensors: for Adafactor, the least size
// of a parameter and the most of a direction, as root mean squares.
struct TensorStep {
  double rate = 0;
  double least = 0, most = 0;  // else bounds of the trust ratio
};
inline constexpr int tensor_step_at = 10;  // floats from the first factor
inline constexpr int tensor_step_floats = sizeof(TensorStep) / sizeof(float);

constexpr TensorStep tensor_step(const float* factors) {
  std::array<float, tensor_step_floats> floats{};
  for (int i = 0; i < tensor_step_floats; ++i) floats[i] = factors[tensor_step_at + i];
  return std::bit_cast<TensorStep>(floats);
}

// Returns the step of Muon, with the scale of the matrix's shape.
constexpr float step_by(const TensorStep& step, double scale) {
  return static_cast<float>(-step.rate * scale);
}

template <class Sums>
constexpr float step_of(const float* factors, const Sums& sums) {
  const TensorStep step = tensor_step(factors);
  return step_by(
      step, trust_ratio(norm_of(sums.parameter), norm_of(sums.direction), step.least, step.most));
}

// Adafactor's step of a tensor, and the decay.
struct StepAndDecay {
  float step = 0, decay = 0;
};
template <class Sums>
constexpr StepAndDecay adafactor_step(const float* factors, const Sums& sums,
                                      std::int64_t elements) {
  using std::sqrt;
  const auto own = factors_from<AdafactorRule, float>(factors);
  const TensorStep step = tensor_step(factors);
  const double root = sqrt(static_cast<double>(elements));
  double size = own.scales > 0 ? norm_of(sums.parameter) / root : 1;
  if (own.scales > 0 && size < step.least) size = step.least;
  const double excess = norm_of(sums.direction) / (root * step.most);
  const double rate = step.rate * size;
  const double decay = static_cast<double>(own.decay);
  return {static_cast<float>(-rate / (excess > 1 ? excess : 1)),
          static_cast<float>(own.scales_decay > 0 ? decay * rate : decay)};
}

// A rule with a direction, computed first because the step depends on the direction's norm.
template <class Rule>
concept HasDirection = requires(const typename Rule::template Factors<float>& factors,
                                float* state) {
  Rule::direct(factors, 0.f, 0.f, state);
};

}  // namespace zero::optim
