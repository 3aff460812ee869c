// The members of Config, as the rows of keys refer to them.
#pragma once

#include <string>
#include <tuple>

#include "zero/plan/config_key.h"

namespace zero::config_keys {

using namespace detail;

using Scale = optim::LossScaleOptions;
using Rule = optim::OptimizerOptions;
using Rate = optim::SchedulerOptions;
using States = OffloadOptimizerOptions;
using Params = OffloadParamOptions;
using Group = ParamGroupOptions;
using Files = CheckpointOptions;
using Elastic = ElasticityOptions;

// The sections that occur once in a config: each has a distinct type.
inline auto sections(Config& config) {
  ZeroOptions& zero = config.zero_optimization;
  return std::tie(config, config.batch, config.batch.elasticity, zero, zero.offload_optimizer,
                  zero.offload_param, config.zero_core, config.zero_core.wire, config.pipeline,
                  config.optimizer, config.scheduler, config.loss_scale, config.checkpoint,
                  config.aio);
}

template <class Section, class T>
Section& section_with(T Section::*, Config& config) {
  return std::get<Section&>(sections(config));
}

// A member of a section, or the member reached from there through `further`.
template <auto member, auto... further>
FieldRef at(Config& config, const std::string&) {
  return &((section_with(member, config).*member).*....*further);
}

template <auto member>
FieldRef in_group(Config& config, const std::string& group) {
  return &(config.zero_core.param_groups[group].*member);
}

inline FieldRef betas(Config& config, const std::string&) {
  return Pair{&config.optimizer.beta1, &config.optimizer.beta2};
}

inline FieldRef reduce_groups(Config& config, const std::string&) {
  return GroupSizes{&config.zero_core.reduce_group_size, &config.zero_core.wider_reduce_groups};
}

}  // namespace zero::config_keys
