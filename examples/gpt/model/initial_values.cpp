#include "examples/gpt/model/initial_values.h"

#include <algorithm>
#include <cmath>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/normals.h"

namespace gpt {

InitialValues::InitialValues(const ModelConfig& config, std::uint64_t seed, zero::ThreadPool& pool)
    : deviation_(config.initial_deviation),
      residual_deviation_(deviation_ / std::sqrt(2 * static_cast<double>(config.layers))),
      seed_(seed),
      pool_(pool) {
  for (const Unit& unit : units_of(config))
    for (const Parameter& parameter : unit.parameters)
      by_name_[unit.global_name(parameter)] = parameter.initial;
}

void InitialValues::fill(const zero::ParamShard& shard) const {
  const Initial initial = by_name_.at(std::string(shard.name));
  if (initial == Initial::zero || initial == Initial::one) {
    std::fill(shard.values.begin(), shard.values.end(), initial == Initial::one ? 1.0f : 0.0f);
    return;
  }
  const double deviation = initial == Initial::residual ? residual_deviation_ : deviation_;
  const CounterRandom random(seed_, shard.name);
  pool_.for_ranges(static_cast<std::int64_t>(shard.values.size()), 1 << 14,
                   [&](std::int64_t begin, std::int64_t end) {
                     fill_normals(random, shard.begin + begin, deviation,
                                  shard.values.subspan(static_cast<std::size_t>(begin),
                                                       static_cast<std::size_t>(end - begin)));
                   });
}

}  // namespace gpt
