// The optimizer groups of a model: update rule, learning rate, decay and schedule of each
// parameter. The groups of zero_core.param_groups are divided further by decay and, if the
// optimizer assigns some parameters to another rule (Muon, Adafactor), by rule. A pure function of
// model and config, equal on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "optim/lr_schedule.h"
#include "optim/rule_table.h"
#include "optim/tensor_step.h"
#include "zero/config.h"
#include "zero/plan/model.h"

namespace zero::detail {

struct UpdateGroup {
  std::string name;  // ParamOptions::group
  bool decay = true;
  bool auxiliary = false;           // assigned to the optimizer's auxiliary rule
  optim::OptimizerOptions options;  // the rule's options; no weight decay if the group has none
  const optim::UpdateRule* rule = nullptr;
  std::optional<optim::LrSchedule> schedule;
  double lr_scale = 1;
  double proportion = 1;      // the rate divided by that of the optimizer's main rule in this group
  bool cycles_betas = false;  // the schedule may set betas
  // The rule's, then the program's own, as indices into UpdateGroups::state_names().
  std::vector<int> states;
  std::span<const int> rule_states() const { return std::span(states).first(rule->states.size()); }
};

// Lists a value per line, for comparison over ranks.
std::string text_of(const ValuesByGroup& given);

class UpdateGroups {
 public:
  // Throws ConfigError for a group without parameters, or with values that the rule does not take.
  UpdateGroups(const Model& model, const Config& config);

  const std::vector<UpdateGroup>& groups() const { return groups_; }
  const UpdateGroup& group(int index) const { return groups_[index]; }
  // The group of each parameter, indexed as Model::params; -1 if frozen.
  const std::vector<int>& group_of_param() const { return group_of_param_; }
  // The states of all rules, in order of first use, then the program's own.
  const std::vector<std::string>& state_names() const { return state_names_; }

  // `state` is an index into state_names().
  bool has_state(int param, int state) const {
    const int own = group_of_param_[param];
    return own >= 0 && std::ranges::count(group(own).states, state) > 0;
  }
  bool needs_tensor_norms() const {
    return std::ranges::any_of(
        groups_, [](const UpdateGroup& group) { return optim::sees_norms(group.rule->scope); });
  }
  // Words of int64 for the norms of tensors; 0 if no rule needs these.
  std::int64_t norm_words() const {
    return needs_tensor_norms() ? optim::tensor_sum_words * std::ssize(group_of_param_) : 0;
  }
  // Whether the rule of a parameter factors its second moment.
  bool factors(int param) const {
    const int own = group_of_param_[param];
    return own >= 0 && group(own).rule->scope == optim::UpdateScope::tensor_factors;
  }

  // The scheduled rate for parameters without a separate rate.
  double learning_rate(std::int64_t applied_step) const { return schedule_.rate(applied_step); }
  // Returns a group's scalars for a step. A rate given by the program replaces the schedule's; a
  // group with a separate rate keeps the ratio to the optimizer's rate.
  optim::StepScalars scalars(int group, optim::StepScalars common,
                             std::optional<double> given_rate) const;
  // Writes the factors of the applied step with this number, given a rate for all and values by
  // group.
  void write_factors(int group, std::int64_t applied_step, std::optional<double> given_rate,
                     const ValuesByGroup& given, float* factors) const;
  // Checks StepOptions. Throws UsageError for a group without parameters, for values that the
  // group's rules do not take, and for values out of range.
  void check(std::optional<double> learning_rate, const ValuesByGroup& given) const;
  // Returns the values of the applied step with this number; throws UsageError for a group without
  // parameters.
  GroupValues values(std::string_view group, std::int64_t applied_step) const;

 private:
  int find_or_add(const ParamDeclaration& param, const Config& config);
  void add_states(const Model& model);

  double learning_rate_ = 0;
  optim::LrSchedule schedule_;
  std::vector<UpdateGroup> groups_;
  std::vector<int> group_of_param_;
  std::vector<std::string> state_names_;
};

}  // namespace zero::detail
