// The keys of the optimizer and of the schedule of the learning rate.
#include "zero/plan/key_sections.h"

#include "zero/plan/config_members.h"
#include "zero/plan/key_rows.h"

namespace zero::config_keys {

namespace {

using Owners = const std::string_view[];
constexpr Owners every = {"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "Muon", "Adafactor"};
constexpr Owners with_betas = {"Adam", "AdamW", "Lamb", "Lion", "Muon"};
constexpr Owners with_eps = {"Adam", "AdamW", "Lamb", "Adagrad", "Muon"};
constexpr Owners with_momentum = {"SGD", "Muon"};
constexpr Owners adam = {"Adam", "AdamW", "Muon"};
constexpr Owners corrected = {"Adam", "AdamW", "Lamb"};
constexpr Owners sgd = {"SGD"}, adagrad = {"Adagrad"}, lamb = {"Lamb"}, muon = {"Muon"};
constexpr Owners adafactor = {"Adafactor"};
constexpr Owners schedules = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest",
                              "OneCycle"};
constexpr Owners warmup = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
constexpr Owners linear = {"WarmupLR", "WarmupDecayLR"};
constexpr Owners ending = {"WarmupDecayLR", "WarmupCosineLR"};
constexpr Owners cosine = {"WarmupCosineLR"}, range_test = {"LRRangeTest"}, cycle = {"OneCycle"};

}  // namespace

void add_optimizer(RowList& rows) {
  constexpr std::string_view one_bit =
      "a 1-bit optimizer, which DeepSpeed removed in 0.19.7; use AdamW or Lamb";
  constexpr std::string_view mup = "of the Python package mup, not supported; use AdamW or SGD";
  const Names types{"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "Muon", "Adafactor"};
  rows.in("optimizer",
          {section("the update rule"),
           acts("type", at<&Rule::type>, types,
                "name of the update rule; without optimizer: AdamW. As in DeepSpeed, Adam is "
                "AdamW too unless adam_w_mode is false")
               .in_any_case()
               .with(&Key::refused_choices, {{"OneBitAdam", one_bit},
                                             {"ZeroOneAdam", one_bit},
                                             {"OneBitLamb", one_bit},
                                             {"MuAdam", mup},
                                             {"MuAdamW", mup},
                                             {"MuSGD", mup}})});
  rows.in(
      "optimizer.params",
      {section("parameters of the type"),
       acts("lr", at<&Rule::learning_rate>, rates,
            "learning rate; not given: 0.01 for Adagrad, Adafactor; 0.02 for Muon")
           .of(every),
       acts("weight_decay", at<&Rule::weight_decay>, rates,
            "weight decay; not given: 0.01 with torch_adam, else 0")
           .of(every),
       acts("betas", betas, below_one,
            "decay of the running averages of gradients and squared gradients; not given: "
            "[0.9, 0.95] for Muon")
           .of(with_betas),
       acts("eps", at<&Rule::epsilon>, rates,
            "added to the denominator; not given: 1e-10 for Adagrad and Muon")
           .of(with_eps),
       acts("adam_w_mode", at<&Rule::adam_w_mode>,
            "true: decoupled decay, also for Adam; AdamW ignores it")
           .of(adam),
       acts("bias_correction", at<&Rule::bias_correction>,
            "bias correction of the running averages")
           .of(corrected),
       acts("momentum", at<&Rule::momentum>, unit_interval, "momentum; not given: 0.95 for Muon")
           .of(with_momentum),
       acts("dampening", at<&Rule::dampening>, signed_rates,
            "dampening of the gradient in the momentum")
           .of(sgd),
       acts("nesterov", at<&Rule::nesterov>,
            "Nesterov momentum; needs momentum above 0 and dampening 0")
           .of(sgd),
       acts("max_coeff", at<&Rule::max_coeff>, rates,
            "upper limit of a tensor's trust ratio |parameter| / |update|")
           .of(lamb),
       acts("min_coeff", at<&Rule::min_coeff>, rates, "lower limit of the trust ratio").of(lamb),
       acts("eps_inside_sqrt", at<&Rule::eps_inside_sqrt>, "add eps inside the square root")
           .of(lamb),
       acts("lr_decay", at<&Rule::lr_decay>, rates, "step t runs with lr / (1 + (t - 1) lr_decay)")
           .of(adagrad),
       acts("initial_accumulator_value", at<&Rule::initial_accumulator_value>, rates,
            "initial value of the sum of squares")
           .of(adagrad),
       acts("muon_lr", at<&Rule::muon_lr>, rates,
            "instead of lr, of the matrices: parameters of two or more dimensions whose name "
            "holds neither embed nor lm_head")
           .of(muon),
       acts("adam_lr", at<&Rule::adam_lr>, rates,
            "instead of lr, of all other parameters, which Adam updates; 0.0003 where lr is "
            "not given either")
           .of(muon),
       acts("ns_method", at<&Rule::ns_method>, Names{"gram", "standard"},
            "form of the Newton-Schulz iteration, in fp32")
           .of(muon)});
  rows.in(
      "optimizer.params",
      {acts("beta2_decay", at<&Rule::beta2_decay>, ValueRange{.low = -1e6, .high = 0},
            "step t averages squares with a share of t ^ beta2_decay")
           .of(adafactor),
       acts("eps1", at<&Rule::eps1>, rates,
            "torch.optim.Adafactor's eps[0]: least root of a second moment; null: 1.19e-07, "
            "or 1e-30 with transformers_form")
           .of(adafactor)
           .or_null(),
       acts("eps2", at<&Rule::eps2>, rates,
            "its eps[1]: least size of a parameter, as root mean square")
           .of(adafactor),
       acts("d", at<&Rule::d>, ValueRange{.low = 1, .high = 1e6},
            "most root mean square of an update")
           .of(adafactor),
       acts("transformers_form", at<&Rule::transformers_form>,
            "as transformers' Adafactor: eps1 is added to squares, and weight_decay is "
            "relative to the step")
           .of(adafactor),
       acts("scale_parameter", at<&Rule::scale_parameter>,
            "steps are relative to the size of the parameter")
           .of(adafactor),
       acts("relative_step", at<&Rule::relative_step>, "step t has a rate of at most 1 / sqrt(t)")
           .of(adafactor),
       acts("warmup_init", at<&Rule::warmup_init>,
            "with relative_step: step t has a rate of at most 1e-6 t, for any lr")
           .of(adafactor)});
}

void add_scheduler(RowList& rows) {
  rows.in("scheduler",
          {section("the learning rate schedule; without it the rate is constant"),
           acts("type", at<&Rate::type>,
                Names{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"},
                "name of the schedule")});
  rows.in(
      "scheduler.params",
      {section("parameters of the type"),
       acts("last_batch_iteration", at<&Rate::last_batch_iteration>, {.low = -1, .high = many},
            "the step at which the schedule starts")
           .of(schedules),
       acts("warmup_min_lr", at<&Rate::warmup_min_lr>, rates, "rate at the start")
           .of(linear)
           .or_list_of_one(),
       acts("warmup_max_lr", at<&Rate::warmup_max_lr>, rates,
            "rate after warmup; null: the optimizer's; not set: so too for WarmupLR, 0.001 "
            "for WarmupDecayLR")
           .of(linear)
           .or_null()
           .or_list_of_one(),
       acts("warmup_num_steps", at<&Rate::warmup_num_steps>, positive_counts,
            "warmup steps; 1 acts like 2")
           .of(warmup)
           .strictly(),
       acts("warmup_type", at<&Rate::warmup_type>, Names{"log", "linear"}, "shape of the warmup")
           .of(warmup),
       acts("total_num_steps", at<&Rate::total_num_steps>, positive_counts,
            "step at which the decay ends; required")
           .of(ending)
           .zero_as(not_set)
           .needed(),
       acts("warmup_min_ratio", at<&Rate::warmup_min_ratio>, rates,
            "share of the optimizer's rate at the start")
           .of(cosine),
       acts("cos_min_ratio", at<&Rate::cos_min_ratio>, rates,
            "share of the optimizer's rate at the end")
           .of(cosine),
       acts("lr_range_test_min_lr", at<&Rate::lr_range_test_min_lr>, positive_rates,
            "rate at the start")
           .of(range_test)
           .or_list_of_one(),
       acts("lr_range_test_step_size", at<&Rate::lr_range_test_step_size>, positive_counts,
            "steps of one interval")
           .of(range_test),
       acts("lr_range_test_step_rate", at<&Rate::lr_range_test_step_rate>, signed_rates,
            "growth per interval, in multiples of the first rate")
           .of(range_test),
       acts("lr_range_test_staircase", at<&Rate::lr_range_test_staircase>,
            "constant within an interval")
           .of(range_test)});
  rows.in(
      "scheduler.params",
      {acts("cycle_min_lr", at<&Rate::cycle_min_lr>, rates,
            "rate at both ends of the cycle; required")
           .of(cycle)
           .needed()
           .or_list_of_one(),
       acts("cycle_max_lr", at<&Rate::cycle_max_lr>, rates,
            "rate at the top of the cycle; required")
           .of(cycle)
           .needed()
           .or_list_of_one(),
       acts("decay_lr_rate", at<&Rate::decay_lr_rate>, rates, "decay rate after the cycle; 0: none")
           .of(cycle),
       acts("decay_step_size", at<&Rate::decay_step_size>, counts, "steps of that decay; 0: none")
           .of(cycle),
       acts("cycle_first_step_size", at<&Rate::cycle_first_step_size>, positive_counts,
            "steps of the rising half")
           .of(cycle),
       acts("cycle_second_step_size", at<&Rate::cycle_second_step_size>, counts,
            "steps of the falling half; null: as many as of the rising half")
           .of(cycle)
           .or_null(),
       acts("cycle_first_stair_count", at<&Rate::cycle_first_stair_count>, counts,
            "stairs of the rising half; 0: a straight line")
           .of(cycle),
       acts("cycle_second_stair_count", at<&Rate::cycle_second_stair_count>, counts,
            "stairs of the falling half; null: as many as of the rising half")
           .of(cycle)
           .or_null(),
       acts("cycle_momentum", at<&Rate::cycle_momentum>,
            "move the first beta against the rate; the second is 0.99 then")
           .of(cycle),
       acts("cycle_min_mom", at<&Rate::cycle_min_mom>, below_one,
            "least momentum, at the top of the cycle and in the first step")
           .of(cycle)
           .or_list_of_one(),
       acts("cycle_max_mom", at<&Rate::cycle_max_mom>, below_one, "most momentum")
           .of(cycle)
           .or_list_of_one(),
       acts("decay_mom_rate", at<&Rate::decay_mom_rate>, signed_rates,
            "growth of the momentum after the cycle, per decay_step_size; 0: none")
           .of(cycle)});
}

}  // namespace zero::config_keys
