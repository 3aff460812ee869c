// Options of the update rule and of the learning rate: plain values with DeepSpeed's defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero::optim {

struct OptimizerOptions {
  // A DeepSpeed name, in any case: AdamW, Adam, Lamb, Lion, Adagrad, SGD, Muon, Adafactor.
  std::string type = "AdamW";
  double learning_rate = 1e-3;
  double weight_decay = 0;
  // AdamW, Adam, Lamb, Lion, and Muon's auxiliary Adam; eps: Adagrad too, and not Lion
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool adam_w_mode = true;  // Adam with true is AdamW, as in DeepSpeed; AdamW ignores this
  bool bias_correction = true;
  // SGD, Muon
  double momentum = 0;
  // SGD
  double dampening = 0;
  bool nesterov = false;
  // Adagrad
  double lr_decay = 0, initial_accumulator_value = 0;
  // Lamb: bounds of the trust ratio
  double max_coeff = 10, min_coeff = 0.01;
  bool eps_inside_sqrt = false;
  // Muon: rates of matrices and of parameters left to Adam; learning_rate if absent
  std::optional<double> muon_lr, adam_lr;
  std::string ns_method = "gram";  // or standard, or torch: standard as in torch.optim.Muon
  // Adafactor: the exponent of the decay, eps[0] (absent: fp32's machine epsilon), eps[1],
  // threshold
  double beta2_decay = -0.8;
  std::optional<double> eps1;
  double eps2 = 1e-3, d = 1;
  // The rest as in transformers.optimization.Adafactor, with eps1 added to squares and a weight
  // decay that is relative to the step. torch.optim.Adafactor scales, and has relative steps of at
  // most the learning rate.
  bool transformers_form = false, scale_parameter = true, relative_step = true, warmup_init = false;
  bool factored = true;  // false: the rule for parameters with fewer than two dimensions
};

// Returns the defaults of DeepSpeed 0.19 (or PyTorch) for this type; for an unknown type, AdamW's.
OptimizerOptions default_options(const std::string& type);

// Returns true for AdamW, and for Adam with adam_w_mode.
bool decouples_weight_decay(const OptimizerOptions& options);

// Throws ConfigError for an unknown type, naming the known types, and for options out of range.
void check_options(const OptimizerOptions& options);

// Returns true if the optimizer has betas that a schedule can set.
bool has_betas(const OptimizerOptions& options);

// Returns true for Muon, which updates every parameter other than hidden matrices by Adam; any
// other type has one rule. (Adafactor's rule for vectors has the same options.)
bool has_auxiliary_rule(const OptimizerOptions& options);
// Returns the options of the rule itself, or of the auxiliary rule (Adafactor: of vectors).
OptimizerOptions options_of_rule(const OptimizerOptions& options, bool auxiliary);
// Returns true unless the name is that of an embedding or lm_head; Muon applies to all remaining
// matrices.
bool takes_matrix_rule(std::string_view parameter_name);

struct SchedulerOptions {
  std::string type = "";  // empty: constant; otherwise a DeepSpeed name, as spelled below
  // WarmupLR, WarmupDecayLR, WarmupCosineLR
  double warmup_min_lr = 0;
  std::optional<double> warmup_max_lr;  // WarmupLR: the optimizer's rate if absent
  std::int64_t warmup_num_steps = 1000;
  std::string warmup_type = "log";   // or linear
  std::int64_t total_num_steps = 0;  // required by WarmupDecayLR and WarmupCosineLR
  double warmup_min_ratio = 0, cos_min_ratio = 1e-4;
  // LRRangeTest
  double lr_range_test_min_lr = 1e-3, lr_range_test_step_rate = 1;
  std::int64_t lr_range_test_step_size = 2000;
  bool lr_range_test_staircase = false;
  // OneCycle
  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  std::int64_t decay_step_size = 0, cycle_first_step_size = 2000, cycle_first_stair_count = 0;
  std::optional<std::int64_t> cycle_second_step_size, cycle_second_stair_count;  // absent: as first
  bool cycle_momentum = true;  // for optimizers that have betas
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  // All
  std::int64_t last_batch_iteration = -1;
};

}  // namespace zero::optim
