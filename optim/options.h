// What a config says about the update rule and the learning rate; plain values with DeepSpeed's
// defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zero::optim {

struct OptimizerOptions {
  std::string type = "AdamW";  // DeepSpeed's names, any case: AdamW, Adam, SGD
  double learning_rate = 1e-3;
  double weight_decay = 0;
  // Adam, AdamW
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool adam_w_mode = true;  // Adam with true is AdamW, as in DeepSpeed; AdamW ignores it
  bool bias_correction = true;
  // SGD
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

struct SchedulerOptions {
  std::string type = "";  // empty: constant; else one of DeepSpeed's names below, in this spelling
  // WarmupLR, WarmupDecayLR, WarmupCosineLR
  double warmup_min_lr = 0;
  std::optional<double> warmup_max_lr;  // WarmupLR: absent means the optimizer's own
  std::int64_t warmup_num_steps = 1000;
  std::string warmup_type = "log";   // or linear
  std::int64_t total_num_steps = 0;  // required by WarmupDecayLR and WarmupCosineLR
  double warmup_min_ratio = 0, cos_min_ratio = 1e-4;
  // LRRangeTest
  double lr_range_test_min_lr = 1e-3, lr_range_test_step_rate = 1;
  std::int64_t lr_range_test_step_size = 2000;
  bool lr_range_test_staircase = false;
  // OneCycle, of the rate alone: its momentum stays what the optimizer says
  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  std::int64_t decay_step_size = 0, cycle_first_step_size = 2000, cycle_first_stair_count = 0;
  std::optional<std::int64_t> cycle_second_step_size, cycle_second_stair_count;  // absent: as first
  // All
  std::int64_t last_batch_iteration = -1;
};

}  // namespace zero::optim
