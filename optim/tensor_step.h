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

// Stored after the factors of a rule, if the rule sees whole tensors.
struct TensorStep {
  double rate = 0;
  double least = 0, most = 0;  // bounds of the trust ratio
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

// A rule with a direction, computed first because the step depends on its norm.
template <class Rule>
concept HasDirection = requires(const typename Rule::template Factors<float>& factors,
                                float* state) {
  Rule::direct(factors, 0.f, 0.f, state);
};

}  // namespace zero::optim
