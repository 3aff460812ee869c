#include "zero/plan/update_groups.h"

#include <algorithm>
#include <tuple>

namespace zero::detail {

namespace {

// What the config gives a group of its own, in the place of the optimizer's options.
void replace_options(UpdateGroup& group, const ParamGroupOptions& own) {
  optim::OptimizerOptions& options = group.options;
  const optim::UpdateRule& rule = optim::rule_of(options);
  const auto require = [&](bool holds, const char* key) {
    if (!holds)
      throw ConfigError("zero_core.param_groups." + group.name + "." + key + ": " + options.type +
                        " has no such parameter; remove it");
  };
  require(!own.betas || rule.betas, "betas");
  require(!own.eps || rule.eps, "eps");
  require(!own.momentum || rule.momentum, "momentum");
  options.learning_rate = own.lr.value_or(options.learning_rate);
  options.weight_decay = own.weight_decay.value_or(options.weight_decay);
  options.momentum = own.momentum.value_or(options.momentum);
  options.epsilon = own.eps.value_or(options.epsilon);
  if (own.betas) std::tie(options.beta1, options.beta2) = *own.betas;
  group.lr_scale = own.lr_scale;
}

bool belongs_to_auxiliary(const ParamDeclaration& param, const Config& config) {
  const bool matrix = param.shape.size() >= 2;
  if (param.options.whole.value_or(false) && !matrix)
    throw UsageError("parameter " + param.name + " of shape " + to_text(param.shape) +
                     " is declared whole, which only matrices can be");
  const bool whole = param.options.whole.value_or(matrix && optim::takes_matrix_rule(param.name));
  return optim::has_auxiliary_rule(config.optimizer) && !whole;
}

}  // namespace

UpdateGroups::UpdateGroups(const Model& model, const Config& config)
    : learning_rate_(optim::options_of_rule(config.optimizer, false).learning_rate),
      schedule_(config.scheduler, learning_rate_) {
  optim::check_options(config.optimizer);  // whatever the model
  for (const ParamDeclaration& param : model.params)
    group_of_param_.push_back(param.options.trainable ? find_or_add(param, config) : -1);
  for (const auto& [name, options] : config.zero_core.param_groups)
    if (std::ranges::none_of(model.params, [&name = name](const ParamDeclaration& param) {
          return param.options.group == name;
        }))
      throw ConfigError("zero_core.param_groups." + name + ": no parameter of the model is in it");
}

int UpdateGroups::find_or_add(const ParamDeclaration& param, const Config& config) {
  UpdateGroup group;
  group.name = param.options.group;
  group.decay = param.options.decay;
  group.auxiliary = belongs_to_auxiliary(param, config);
  for (int i = 0; i < std::ssize(groups_); ++i)
    if (groups_[i].name == group.name && groups_[i].decay == group.decay &&
        groups_[i].auxiliary == group.auxiliary)
      return i;
  group.options = optim::options_of_rule(config.optimizer, group.auxiliary);
  const auto own = config.zero_core.param_groups.find(group.name);
  if (own != config.zero_core.param_groups.end()) replace_options(group, own->second);
  optim::check_options(group.options);
  if (!group.decay) group.options.weight_decay = 0;
  group.rule = &optim::rule_of(group.options);
  group.schedule.emplace(config.scheduler, group.options.learning_rate);
  // DeepSpeed's Muon does not offer its Adam's betas to schedules.
  group.cycles_betas = group.rule->betas && !optim::has_auxiliary_rule(config.optimizer);
  for (const std::string_view state : group.rule->states) {
    const auto known = std::ranges::find(state_names_, state);
    group.states.push_back(static_cast<int>(known - state_names_.begin()));
    if (known == state_names_.end()) state_names_.emplace_back(state);
  }
  groups_.push_back(std::move(group));
  return static_cast<int>(groups_.size()) - 1;
}

optim::StepScalars UpdateGroups::scalars(int index, optim::StepScalars common,
                                         std::optional<double> given_rate) const {
  const UpdateGroup& own = group(index);
  double rate = own.schedule->rate(common.step);
  const double own_rate = own.options.learning_rate;
  const bool in_proportion = own_rate != learning_rate_ && learning_rate_ > 0;
  if (given_rate) rate = in_proportion ? *given_rate * own_rate / learning_rate_ : *given_rate;
  common.learning_rate = static_cast<float>(rate * own.lr_scale);
  common.weight_decay = static_cast<float>(own.options.weight_decay);
  if (own.cycles_betas) common.betas = own.schedule->betas(common.step);
  return common;
}

}  // namespace zero::detail
