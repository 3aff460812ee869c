#include "examples/gpt/model/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/random.h"

namespace gpt {
namespace {

// Box-Muller transform: elements 2p and 2p + 1 are the two values of pair p.
double normal(const CounterRandom& random, std::int64_t element) {
  const auto pair = static_cast<std::uint64_t>(element / 2);
  const double radius = std::sqrt(-2 * std::log(random.uniform(2 * pair)));
  const double angle = 2 * std::numbers::pi * random.uniform(2 * pair + 1);
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

InitialValues::InitialValues(const ModelConfig& config, std::uint64_t seed, zero::ThreadPool& pool)
    : deviation_(config.initial_deviation),
      residual_deviation_(deviation_ / std::sqrt(2 * static_cast<double>(config.layers))),
      seed_(seed),
      pool_(pool) {
  for (const Unit& unit : units_of(config))
    for (const Parameter& parameter : unit.parameters)
      by_name_[unit.name + "." + parameter.name] = parameter.initial;
}

void InitialValues::fill(const zero::ParamShard& shard) const {
  const Initial initial = by_name_.at(std::string(shard.name));
  if (initial == Initial::zero || initial == Initial::one) {
    std::fill(shard.values.begin(), shard.values.end(), initial == Initial::one ? 1.0f : 0.0f);
    return;
  }
  const double deviation = initial == Initial::residual ? residual_deviation_ : deviation_;
  const CounterRandom random(seed_, shard.name);
  pool_.for_ranges(static_cast<std::int64_t>(shard.values.size()), 64,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i)
                       shard.values[static_cast<std::size_t>(i)] =
                           static_cast<float>(deviation * normal(random, shard.begin + i));
                   });
}

}  // namespace gpt
