#include "config_schemas/keys.h"

#include <algorithm>
#include <iterator>

namespace zero::config_schemas {
namespace {

constexpr Range positive{.low = 0, .above_low = true};
constexpr Range not_negative{.low = 0};
constexpr Range at_least_one{.low = 1};

template <auto member>
Target top(Config& config, const std::string&) {
  return &(config.*member);
}

template <auto section, auto member>
Target at(Config& config, const std::string&) {
  return &(config.*section.*member);
}

template <auto member>
Target in_zero(Config& config, const std::string&) {
  return &(config.zero_optimization.*member);
}

template <auto member>
Target in_core(Config& config, const std::string&) {
  return &(config.zero_core.*member);
}

template <auto member>
Target in_optimizer(Config& config, const std::string&) {
  return &(config.optimizer.*member);
}

template <auto member>
Target in_scheduler(Config& config, const std::string&) {
  return &(config.scheduler.*member);
}

template <auto member>
Target in_group(Config& config, const std::string& name) {
  return &(config.zero_core.param_groups[name].*member);
}

Target betas(Config& config, const std::string&) {
  return Pair{&config.optimizer.beta1, &config.optimizer.beta2};
}

std::vector<Key> general_keys() {
  return {
      {.path = "train_batch_size",
       .type = Type::integer,
       .range = at_least_one,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::train_batch_size>,
       .meaning = "samples per optimizer step over all ranks"},
      {.path = "train_micro_batch_size_per_gpu",
       .type = Type::integer,
       .range = at_least_one,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::train_micro_batch_size_per_gpu>,
       .meaning = "samples per rank and micro step"},
      {.path = "gradient_accumulation_steps",
       .type = Type::integer,
       .range = at_least_one,
       .nullable = true,
       .zero_is_absent = true,
       .target = at<&Config::batch, &BatchOptions::gradient_accumulation_steps>,
       .meaning = "micro steps per optimizer step"},
      {.path = "gradient_clipping",
       .type = Type::number,
       .target = top<&Config::gradient_clipping>,
       .meaning = "largest global L2 norm of the gradients; 0 or less: no clipping"},
      {.path = "steps_per_print",
       .type = Type::integer,
       .range = not_negative,
       .nullable = true,
       .target = top<&Config::steps_per_print>,
       .meaning = "a progress line every so many steps; 0 or null: never"},
      {.path = "seed",
       .type = Type::integer,
       .range = not_negative,
       .target = top<&Config::seed>,
       .meaning = "of the initial values and the order of the data"},
      {.path = "bf16", .nullable = true, .meaning = "16-bit parameters and gradients (bfloat16)"},
      {.path = "bf16.enabled",
       .type = Type::boolean,
       .target = top<&Config::bf16_enabled>,
       .meaning = "compute in bfloat16 with fp32 master weights"},
  };
}

std::vector<Key> zero_keys() {
  return {
      {.path = "zero_optimization",
       .meaning = "what is sharded over the ranks, and in what pieces"},
      {.path = "zero_optimization.stage",
       .type = Type::integer,
       .range = {.low = 0, .high = 3},
       .target = in_zero<&ZeroOptions::stage>,
       .meaning = "0: nothing, 1: optimizer states, 2: and gradients, 3: and parameters"},
      {.path = "zero_optimization.reduce_bucket_size",
       .type = Type::integer,
       .range = at_least_one,
       .target = in_zero<&ZeroOptions::reduce_bucket_size>,
       .meaning = "elements per gradient reduction"},
      {.path = "zero_optimization.allgather_bucket_size",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::allgather_bucket_size>,
       .meaning = "elements per all-gather of parameters"},
      {.path = "zero_optimization.stage3_prefetch_bucket_size",
       .alias = "prefetch_bucket_size",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::prefetch_bucket_size>,
       .meaning = "stage 3: elements gathered ahead; not set: one unit"},
      {.path = "zero_optimization.stage3_max_live_parameters",
       .alias = "max_live_parameters",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::max_live_parameters>,
       .meaning = "stage 3: most gathered elements that prefetching may reach"},
      {.path = "zero_optimization.stage3_max_reuse_distance",
       .alias = "max_reuse_distance",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::max_reuse_distance>,
       .meaning = "stage 3: units used again within so many elements stay gathered"},
      {.path = "zero_optimization.stage3_param_persistence_threshold",
       .alias = "param_persistence_threshold",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::param_persistence_threshold>,
       .meaning = "stage 3: parameters of at most so many elements stay gathered; not set: none"},
      {.path = "zero_optimization.stage3_model_persistence_threshold",
       .alias = "model_persistence_threshold",
       .type = Type::integer,
       .range = not_negative,
       .target = in_zero<&ZeroOptions::model_persistence_threshold>,
       .meaning = "stage 3: most elements that stay gathered in all"},
  };
}

std::vector<Key> optimizer_keys() {
  const std::vector<std::string_view> adam{"Adam", "AdamW"}, sgd{"SGD"},
      all{"Adam", "AdamW", "SGD"};
  return {
      {.path = "optimizer", .meaning = "the update rule"},
      {.path = "optimizer.type",
       .type = Type::choice,
       .choices = all,
       .any_case = true,
       .target = in_optimizer<&optim::OptimizerOptions::type>,
       .meaning = "name of the update rule"},
      {.path = "optimizer.params", .meaning = "its parameters"},
      {.path = "optimizer.params.lr",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = all,
       .target = in_optimizer<&optim::OptimizerOptions::learning_rate>,
       .meaning = "learning rate"},
      {.path = "optimizer.params.weight_decay",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = all,
       .target = in_optimizer<&optim::OptimizerOptions::weight_decay>,
       .meaning = "decay of weights towards zero"},
      {.path = "optimizer.params.betas",
       .type = Type::pair,
       .range = {.low = 0, .high = 1, .below_high = true},
       .belongs_to = adam,
       .target = betas,
       .meaning = "decay of the running averages of gradients and squared gradients"},
      {.path = "optimizer.params.eps",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = adam,
       .target = in_optimizer<&optim::OptimizerOptions::epsilon>,
       .meaning = "added to the denominator"},
      {.path = "optimizer.params.adam_w_mode",
       .type = Type::boolean,
       .belongs_to = adam,
       .target = in_optimizer<&optim::OptimizerOptions::adam_w_mode>,
       .meaning = "true: decoupled decay, also for Adam; AdamW ignores it"},
      {.path = "optimizer.params.bias_correction",
       .type = Type::boolean,
       .belongs_to = adam,
       .target = in_optimizer<&optim::OptimizerOptions::bias_correction>,
       .meaning = "correct the averages for their start at zero"},
      {.path = "optimizer.params.momentum",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = sgd,
       .target = in_optimizer<&optim::OptimizerOptions::momentum>,
       .meaning = "share of the last update that is kept"},
      {.path = "optimizer.params.dampening",
       .type = Type::number,
       .belongs_to = sgd,
       .target = in_optimizer<&optim::OptimizerOptions::dampening>,
       .meaning = "share of the gradient that momentum leaves out"},
      {.path = "optimizer.params.nesterov",
       .type = Type::boolean,
       .belongs_to = sgd,
       .target = in_optimizer<&optim::OptimizerOptions::nesterov>,
       .meaning = "look-ahead momentum; needs momentum above 0 and dampening 0"},
  };
}

std::vector<Key> scheduler_keys() {
  const std::vector<std::string_view> linear{"WarmupLR", "WarmupDecayLR"}, cosine{"WarmupCosineLR"};
  const std::vector<std::string_view> ending{"WarmupDecayLR", "WarmupCosineLR"};
  const std::vector<std::string_view> all{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  return {
      {.path = "scheduler", .meaning = "the learning rate over the steps; without it a constant"},
      {.path = "scheduler.type",
       .type = Type::choice,
       .choices = all,
       .target = in_scheduler<&optim::SchedulerOptions::type>,
       .meaning = "name of the schedule"},
      {.path = "scheduler.params", .meaning = "its parameters"},
      {.path = "scheduler.params.warmup_min_lr",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = linear,
       .target = in_scheduler<&optim::SchedulerOptions::warmup_min_lr>,
       .meaning = "rate at the start"},
      {.path = "scheduler.params.warmup_max_lr",
       .type = Type::number,
       .range = not_negative,
       .nullable = true,
       .belongs_to = linear,
       .target = in_scheduler<&optim::SchedulerOptions::warmup_max_lr>,
       .meaning =
           "rate after warmup; null: the optimizer's; not set: so too for WarmupLR, 0.001 for "
           "WarmupDecayLR"},
      {.path = "scheduler.params.warmup_num_steps",
       .type = Type::integer,
       .range = at_least_one,
       .strict = true,
       .belongs_to = all,
       .target = in_scheduler<&optim::SchedulerOptions::warmup_num_steps>,
       .meaning = "steps of warmup; 1 acts like 2"},
      {.path = "scheduler.params.warmup_type",
       .type = Type::choice,
       .choices = {"log", "linear"},
       .belongs_to = all,
       .target = in_scheduler<&optim::SchedulerOptions::warmup_type>,
       .meaning = "form of the warmup"},
      {.path = "scheduler.params.total_num_steps",
       .type = Type::integer,
       .range = at_least_one,
       .zero_is_absent = true,
       .belongs_to = ending,
       .target = in_scheduler<&optim::SchedulerOptions::total_num_steps>,
       .meaning = "step at which the decay ends; required"},
      {.path = "scheduler.params.warmup_min_ratio",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = cosine,
       .target = in_scheduler<&optim::SchedulerOptions::warmup_min_ratio>,
       .meaning = "share of the optimizer's rate at the start"},
      {.path = "scheduler.params.cos_min_ratio",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = cosine,
       .target = in_scheduler<&optim::SchedulerOptions::cos_min_ratio>,
       .meaning = "share of the optimizer's rate at the end"},
      {.path = "scheduler.params.last_batch_iteration",
       .type = Type::integer,
       .range = {.low = -1},
       .belongs_to = all,
       .target = in_scheduler<&optim::SchedulerOptions::last_batch_iteration>,
       .meaning = "where the schedule's clock starts"},
  };
}

std::vector<Key> core_keys() {
  return {
      {.path = "zero_core", .meaning = "what DeepSpeed has no key for"},
      {.path = "zero_core.reshard_after_forward",
       .type = Type::boolean,
       .target = in_core<&CoreOptions::reshard_after_forward>,
       .meaning =
           "stage 3: give parameters back between forward and backward (false: SHARD_GRAD_OP)"},
      {.path = "zero_core.gradient_sync",
       .type = Type::choice,
       .choices = {"each", "last"},
       .target = in_core<&CoreOptions::gradient_sync>,
       .meaning =
           "reduce gradients after each micro step or after the last; not set: last at stages "
           "0 and 1, each at 2 and 3"},
      {.path = "zero_core.reduce_group_size",
       .type = Type::group_size,
       .range = at_least_one,
       .target = in_core<&CoreOptions::reduce_group_size>,
       .meaning = "ranks whose sums are formed first; \"node\": the ranks of one node"},
      {.path = "zero_core.time_limit_seconds",
       .type = Type::number,
       .range = positive,
       .target = in_core<&CoreOptions::time_limit_seconds>,
       .meaning = "of every wait for other ranks"},
      {.path = "zero_core.param_groups", .meaning = "optimizer groups by name"},
      {.path = "zero_core.param_groups.*", .meaning = "one group"},
      {.path = "zero_core.param_groups.*.lr_scale",
       .type = Type::number,
       .range = not_negative,
       .target = in_group<&ParamGroupOptions::lr_scale>,
       .meaning = "factor of the learning rate"},
      {.path = "zero_core.param_groups.*.weight_decay",
       .type = Type::number,
       .range = not_negative,
       .target = in_group<&ParamGroupOptions::weight_decay>,
       .meaning = "instead of the optimizer's"},
  };
}

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> result;
    for (auto part : {general_keys, zero_keys, optimizer_keys, scheduler_keys, core_keys})
      std::ranges::move(part(), std::back_inserter(result));
    return result;
  }();
  return table;
}

}  // namespace zero::config_schemas
