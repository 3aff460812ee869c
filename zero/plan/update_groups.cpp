#include "zero/plan/update_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "zero/base/number_text.h"
#include "zero/plan/config_fields.h"
#include "zero/plan/model.h"

namespace zero::detail {

namespace {

// Overrides the optimizer's options by the group's own values in the config.
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

// Overrides options and scalars of a step by the program's values.
void replace_values(const UpdateGroup& group, const GroupValues& given,
                    optim::OptimizerOptions& options, optim::StepScalars& scalars) {
  if (given.learning_rate)
    scalars.learning_rate = static_cast<float>(*given.learning_rate * group.proportion);
  if (given.weight_decay && group.decay)
    scalars.weight_decay = static_cast<float>(*given.weight_decay);
  if (given.betas) scalars.betas = optim::Betas{given.betas->first, given.betas->second};
  options.epsilon = given.eps.value_or(options.epsilon);
  options.momentum = given.momentum.value_or(options.momentum);
}

constexpr double most = std::numeric_limits<float>::max();

void check_range(const std::string& what, std::optional<double> value, double below) {
  if (value && !(*value >= 0 && *value < below))
    throw UsageError("StepOptions::" + what + " is " + shortest_text(*value) +
                     "; expected a number from 0, below " + shortest_text(below));
}

void check_ranges(const std::string& name, const GroupValues& given) {
  const auto require = [&](const char* option, std::optional<double> value, double below) {
    check_range("groups: the " + (option + (" of group \"" + name)) + "\"", value, below);
  };
  require("learning rate", given.learning_rate, most);
  require("weight decay", given.weight_decay, most);
  require("eps", given.eps, most);
  require("momentum", given.momentum, std::nextafter(1.0, 2.0));
  if (!given.betas) return;
  require("first beta", given.betas->first, 1);
  require("second beta", given.betas->second, 1);
}

// SGD has a buffer for momentum, or none, for the whole training run.
void check_momentum(const UpdateGroup& group, double given) {
  const bool has_buffer = group.options.momentum > 0;
  if (!group.rule->momentum || group.rule->scope != optim::UpdateScope::elements ||
      (given > 0) == has_buffer)
    return;
  throw UsageError("StepOptions::groups: the momentum of group \"" + group.name + "\" is " +
                   shortest_text(given) + ", and was " + shortest_text(group.options.momentum) +
                   " at the start: SGD takes memory for it at the start or never, so a group's "
                   "momentum is 0 in all steps or in none");
}

bool belongs_to_auxiliary(const ParamDeclaration& param, const Config& config) {
  const bool matrix = param.shape.size() >= 2;
  if (param.options.whole.value_or(false) && !matrix)
    throw UsageError("parameter " + param.name + " of shape " + to_text(param.shape) +
                     " is declared whole, which only matrices can be");
  if (optim::rule_of(config.optimizer).scope == optim::UpdateScope::tensor_factors) return !matrix;
  const bool whole = param.options.whole.value_or(matrix && optim::takes_matrix_rule(param.name));
  return optim::has_auxiliary_rule(config.optimizer) && !whole;
}

}  // namespace

UpdateGroups::UpdateGroups(const Model& model, const Config& config)
    : learning_rate_(optim::options_of_rule(config.optimizer, false).learning_rate),
      schedule_(config.scheduler, learning_rate_) {
  check_ranges(config);
  optim::check_options(config.optimizer);  // independent of the model
  for (const ParamDeclaration& param : model.params)
    group_of_param_.push_back(param.options.trainable ? find_or_add(param, config) : -1);
  add_states(model);
  if (model.is_stage()) return;  // a stage may have no parameter of a group
  for (const auto& [name, options] : config.zero_core.param_groups)
    if (std::ranges::none_of(model.params, [&name = name](const ParamDeclaration& param) {
          return param.options.group == name;
        }))
      throw ConfigError("zero_core.param_groups." + name + ": no parameter of the model is in it");
}

void UpdateGroups::add_states(const Model& model) {
  for (const StateDeclaration& own : model.states) {
    if (std::ranges::find(state_names_, own.name) != state_names_.end())
      throw UsageError("ModelSpec::state: \"" + own.name +
                       "\" is a state of the optimizer already: choose another name");
    for (UpdateGroup& group : groups_)
      group.states.push_back(static_cast<int>(state_names_.size()));
    state_names_.push_back(own.name);
  }
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
  const double main_rate = own != config.zero_core.param_groups.end() && own->second.lr
                               ? *own->second.lr
                               : optim::options_of_rule(config.optimizer, false).learning_rate;
  group.proportion = main_rate > 0 ? group.options.learning_rate / main_rate : 1;
  group.schedule.emplace(config.scheduler, group.options.learning_rate);
  // With DeepSpeed's Muon, schedules do not change the betas of Adam.
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

void UpdateGroups::write_factors(int index, std::int64_t applied_step,
                                 std::optional<double> given_rate, const ValuesByGroup& given,
                                 float* factors) const {
  const UpdateGroup& own = group(index);
  optim::OptimizerOptions options = own.options;
  optim::StepScalars common;
  common.step = applied_step;
  optim::StepScalars step = scalars(index, common, given_rate);
  if (const auto values = given.find(own.name); values != given.end())
    replace_values(own, values->second, options, step);
  own.rule->write(options, step, factors);
}

void UpdateGroups::check(std::optional<double> learning_rate, const ValuesByGroup& given) const {
  check_range("learning_rate", learning_rate, most);
  for (const auto& [name, values] : given) {
    bool any = false, betas = false, eps = false, momentum = false;
    for (const UpdateGroup& group : groups_) {
      if (group.name != name) continue;
      any = true;
      betas |= group.rule->betas, eps |= group.rule->eps, momentum |= group.rule->momentum;
      if (values.momentum) check_momentum(group, *values.momentum);
    }
    if (!any)
      throw UsageError("StepOptions::groups: group \"" + name + "\" has no parameters" +
                       hint_among(groups_, name));
    const auto require = [&name = name](bool holds, const std::string& what) {
      if (!holds) throw UsageError("StepOptions::groups: group \"" + name + "\" has no " + what);
    };
    require(betas || !values.betas, "betas: its rule takes none");
    require(eps || !values.eps, "eps: its rule takes none");
    require(momentum || !values.momentum, "momentum: its rule takes none");
    check_ranges(name, values);
  }
}

// If the group has two rules, values that both have are the main rule's.
GroupValues UpdateGroups::values(std::string_view name, std::int64_t applied_step) const {
  GroupValues all;
  const auto add = [](auto& value, bool has, const auto& own) {
    if (has && !value) value = own;
  };
  for (const bool auxiliary : {false, true})
    for (int i = 0; i < std::ssize(groups_); ++i) {
      const UpdateGroup& own = groups_[i];
      if (own.name != name || own.auxiliary != auxiliary) continue;
      const optim::Betas betas =
          own.cycles_betas ? own.schedule->betas(applied_step)
                                 .value_or(optim::Betas{own.options.beta1, own.options.beta2})
                           : optim::Betas{own.options.beta1, own.options.beta2};
      add(all.learning_rate, true, own.schedule->rate(applied_step) * own.lr_scale);
      add(all.weight_decay, own.decay, own.options.weight_decay);
      add(all.eps, own.rule->eps, own.options.epsilon);
      add(all.momentum, own.rule->momentum, own.options.momentum);
      add(all.betas, own.rule->betas, std::pair(betas.first, betas.second));
    }
  if (!all.learning_rate)
    throw UsageError("Engine::next_values(): group \"" + std::string(name) +
                     "\" has no parameters");
  return all;
}

std::string text_of(const ValuesByGroup& given) {
  std::string text;
  for (const auto& [name, values] : given) {
    const auto add = [&text, &name = name](const char* what, std::optional<double> value) {
      if (value) text += what + (" of group " + name) + ": " + shortest_text(*value) + "\n";
    };
    add("learning rate", values.learning_rate);
    add("weight decay", values.weight_decay);
    add("eps", values.eps);
    add("momentum", values.momentum);
    if (!values.betas) continue;
    add("first beta", values.betas->first);
    add("second beta", values.betas->second);
  }
  return text;
}

}  // namespace zero::detail
