// Rows of scheduler.
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

using optim::SchedulerOptions;
using Names = std::vector<std::string_view>;

template <auto member>
Target in_scheduler(Config& config, const std::string&) {
  return &(config.scheduler.*member);
}

const Names linear{"WarmupLR", "WarmupDecayLR"}, cosine{"WarmupCosineLR"},
    ending{"WarmupDecayLR", "WarmupCosineLR"},
    warming{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"}, range_test{"LRRangeTest"},
    one_cycle{"OneCycle"},
    all{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"};

std::vector<Key> common_rows() {
  return {
      {.path = "scheduler", .meaning = "the learning rate over the steps; without it a constant"},
      {.path = "scheduler.type",
       .type = Type::choice,
       .choices = all,
       .target = in_scheduler<&SchedulerOptions::type>,
       .meaning = "name of the schedule"},
      {.path = "scheduler.params", .meaning = "its parameters"},
      {.path = "scheduler.params.last_batch_iteration",
       .type = Type::integer,
       .range = {.low = -1, .high = many},
       .belongs_to = all,
       .target = in_scheduler<&SchedulerOptions::last_batch_iteration>,
       .meaning = "where the schedule's clock starts"},
  };
}

std::vector<Key> warmup_rows() {
  return {
      {.path = "scheduler.params.warmup_min_lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = linear,
       .target = in_scheduler<&SchedulerOptions::warmup_min_lr>,
       .meaning = "rate at the start"},
      {.path = "scheduler.params.warmup_max_lr",
       .type = Type::number,
       .range = rates,
       .nullable = true,
       .belongs_to = linear,
       .target = in_scheduler<&SchedulerOptions::warmup_max_lr>,
       .meaning =
           "rate after warmup; null: the optimizer's; not set: so too for WarmupLR, 0.001 for "
           "WarmupDecayLR"},
      {.path = "scheduler.params.warmup_num_steps",
       .type = Type::integer,
       .range = positive_counts,
       .strict = true,
       .belongs_to = warming,
       .target = in_scheduler<&SchedulerOptions::warmup_num_steps>,
       .meaning = "steps of warmup; 1 acts like 2"},
      {.path = "scheduler.params.warmup_type",
       .type = Type::choice,
       .choices = {"log", "linear"},
       .belongs_to = warming,
       .target = in_scheduler<&SchedulerOptions::warmup_type>,
       .meaning = "form of the warmup"},
      {.path = "scheduler.params.total_num_steps",
       .type = Type::integer,
       .range = positive_counts,
       .zero_is_absent = true,
       .belongs_to = ending,
       .required = true,
       .target = in_scheduler<&SchedulerOptions::total_num_steps>,
       .meaning = "step at which the decay ends; required"},
      {.path = "scheduler.params.warmup_min_ratio",
       .type = Type::number,
       .range = rates,
       .belongs_to = cosine,
       .target = in_scheduler<&SchedulerOptions::warmup_min_ratio>,
       .meaning = "share of the optimizer's rate at the start"},
      {.path = "scheduler.params.cos_min_ratio",
       .type = Type::number,
       .range = rates,
       .belongs_to = cosine,
       .target = in_scheduler<&SchedulerOptions::cos_min_ratio>,
       .meaning = "share of the optimizer's rate at the end"},
  };
}

std::vector<Key> range_test_rows() {
  return {
      {.path = "scheduler.params.lr_range_test_min_lr",
       .type = Type::number,
       .range = positive_rates,
       .belongs_to = range_test,
       .target = in_scheduler<&SchedulerOptions::lr_range_test_min_lr>,
       .meaning = "rate at the start"},
      {.path = "scheduler.params.lr_range_test_step_size",
       .type = Type::integer,
       .range = positive_counts,
       .belongs_to = range_test,
       .target = in_scheduler<&SchedulerOptions::lr_range_test_step_size>,
       .meaning = "steps of one interval"},
      {.path = "scheduler.params.lr_range_test_step_rate",
       .type = Type::number,
       .range = signed_rates,
       .belongs_to = range_test,
       .target = in_scheduler<&SchedulerOptions::lr_range_test_step_rate>,
       .meaning = "growth per interval, in multiples of the first rate"},
      {.path = "scheduler.params.lr_range_test_staircase",
       .type = Type::boolean,
       .belongs_to = range_test,
       .target = in_scheduler<&SchedulerOptions::lr_range_test_staircase>,
       .meaning = "constant within an interval"},
  };
}

std::vector<Key> cycle_rows() {
  return {
      {.path = "scheduler.params.cycle_min_lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = one_cycle,
       .required = true,
       .target = in_scheduler<&SchedulerOptions::cycle_min_lr>,
       .meaning = "rate at both ends of the cycle; required"},
      {.path = "scheduler.params.cycle_max_lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = one_cycle,
       .required = true,
       .target = in_scheduler<&SchedulerOptions::cycle_max_lr>,
       .meaning = "rate at the top of the cycle; required"},
      {.path = "scheduler.params.decay_lr_rate",
       .type = Type::number,
       .range = rates,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::decay_lr_rate>,
       .meaning = "fall after the cycle; 0: none"},
      {.path = "scheduler.params.decay_step_size",
       .type = Type::integer,
       .range = counts,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::decay_step_size>,
       .meaning = "steps of that fall; 0: none"},
      {.path = "scheduler.params.cycle_first_step_size",
       .type = Type::integer,
       .range = positive_counts,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_first_step_size>,
       .meaning = "steps of the rise"},
      {.path = "scheduler.params.cycle_second_step_size",
       .type = Type::integer,
       .range = counts,
       .nullable = true,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_second_step_size>,
       .meaning = "steps back; null: as many as of the rise"},
      {.path = "scheduler.params.cycle_first_stair_count",
       .type = Type::integer,
       .range = counts,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_first_stair_count>,
       .meaning = "stairs of the rise; 0: a line"},
      {.path = "scheduler.params.cycle_second_stair_count",
       .type = Type::integer,
       .range = counts,
       .nullable = true,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_second_stair_count>,
       .meaning = "stairs back; null: as many as of the rise"},
  };
}

std::vector<Key> momentum_rows() {
  return {
      {.path = "scheduler.params.cycle_momentum",
       .type = Type::boolean,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_momentum>,
       .meaning = "move the first beta against the rate; the second is 0.99 then"},
      {.path = "scheduler.params.cycle_min_mom",
       .type = Type::number,
       .range = below_one,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_min_mom>,
       .meaning = "least momentum, at the top of the cycle and in the first step"},
      {.path = "scheduler.params.cycle_max_mom",
       .type = Type::number,
       .range = below_one,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::cycle_max_mom>,
       .meaning = "most momentum"},
      {.path = "scheduler.params.decay_mom_rate",
       .type = Type::number,
       .range = signed_rates,
       .belongs_to = one_cycle,
       .target = in_scheduler<&SchedulerOptions::decay_mom_rate>,
       .meaning = "growth of the momentum after the cycle, per decay_step_size; 0: none"},
  };
}

}  // namespace

std::vector<Key> scheduler_rows() {
  std::vector<Key> result;
  for (auto rows : {common_rows, warmup_rows, range_test_rows, cycle_rows, momentum_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
