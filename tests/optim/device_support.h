// Shards, rules and factors for tests of the device kernels.
#pragma once

#include <cmath>
#include <vector>

#include "optim/device_kernels.h"
#include "optim/gradient_norm.h"
#include "tests/optim/support.h"
#include "tests/support/span_optimizer.h"

namespace zero::optim::test {

inline std::vector<OptimizerOptions> all_rules() {
  std::vector<OptimizerOptions> rules(7);
  for (OptimizerOptions& rule : rules) rule.weight_decay = 0.1;
  rules[1].type = "Adam";
  rules[1].adam_w_mode = false;
  for (int r : {2, 3, 4}) rules[static_cast<std::size_t>(r)].type = "SGD";
  rules[3].momentum = rules[4].momentum = 0.9;
  rules[3].dampening = 0.25;
  rules[4].nesterov = true;
  rules[5].type = "Lion";
  rules[6].type = "Adagrad";
  return rules;
}

// Arrays of one shard.
struct Shard {
  std::vector<float> master, states[most_states];
  std::vector<unsigned char> gradient, copy;
};

inline Shard make_shard(std::size_t count, DType gradient, Numbers numbers, unsigned seed) {
  Shard shard;
  shard.master = random_floats(count, Numbers::usual, seed);
  for (auto& state : shard.states) {
    state = random_floats(count, Numbers::usual, seed + 7);
    for (float& value : state) value = std::fabs(value);
  }
  shard.gradient = encode(random_floats(count, numbers, seed + 13), gradient);
  shard.copy.resize(count * 2);
  return shard;
}

inline constexpr std::int64_t count = 3 * 128;
inline constexpr std::int64_t split = 128;  // group 0 before this element, group 1 from here on
inline constexpr float multiplier = 0.37f;

inline StepScalars scalars_of(int candidate, int group) {
  StepScalars scalars;
  scalars.step = 4 + candidate;
  scalars.learning_rate = group == 0 ? 1e-2f : 3e-3f;
  scalars.weight_decay = group == 0 ? 0.1f : 0.f;
  scalars.gradient_multiplier = multiplier;
  return scalars;
}

// Returns two groups' factors for each candidate, as the engine uploads them.
inline std::vector<float> factors_for(const OptimizerOptions& options) {
  std::vector<float> factors(step_candidates * 2 * most_factors);
  for (int candidate = 0; candidate < step_candidates; ++candidate)
    for (const int group : {0, 1})
      rule_of(options).write(options, scalars_of(candidate, group),
                             factors.data() + (candidate * 2 + group) * most_factors);
  return factors;
}

inline StepDecision applying() {
  StepDecision decision;
  decision.apply = decision.candidate = 1;
  decision.gradient_multiplier = static_cast<double>(multiplier);
  return decision;
}

inline double norm_of_floats(const float* values, std::int64_t size) {
  NormSum bins;
  accumulate_norm(values, DType::fp32, size, bins);
  return norm_of(bins);
}

}  // namespace zero::optim::test
