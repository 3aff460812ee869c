// Rows of optimizer.
#include <charconv>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

template <auto member>
Target in_optimizer(Config& config, const std::string&) {
  return &(config.optimizer.*member);
}

Target betas(Config& config, const std::string&) {
  return Pair{&config.optimizer.beta1, &config.optimizer.beta2};
}

using Names = std::vector<std::string_view>;

const Names sgd{"SGD"}, adagrad{"Adagrad"}, lamb{"Lamb"}, muon{"Muon"},
    every{"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "Muon"},
    with_betas{"Adam", "AdamW", "Lamb", "Lion", "Muon"},
    with_eps{"Adam", "AdamW", "Lamb", "Adagrad", "Muon"}, with_momentum{"SGD", "Muon"},
    with_adam{"Adam", "AdamW", "Muon"};

constexpr std::string_view one_bit =
    "a 1-bit optimizer, which DeepSpeed removed in 0.19.7; use AdamW or Lamb";
constexpr std::string_view mup = "of the Python package mup, not supported; use AdamW or SGD";

// A second place for gradient_clipping may repeat it.
bool is_clipping(const Config& config, std::string_view shown) {
  double value = 0;
  std::from_chars(shown.data(), shown.data() + shown.size(), value);
  return value == config.gradient_clipping;
}

Key type_row() {
  return {.path = "optimizer.type",
          .type = Type::choice,
          .choices = every,
          .refused_choices = {{"OneBitAdam", one_bit},
                              {"ZeroOneAdam", one_bit},
                              {"OneBitLamb", one_bit},
                              {"MuAdam", mup},
                              {"MuAdamW", mup},
                              {"MuSGD", mup}},
          .any_case = true,
          .target = in_optimizer<&optim::OptimizerOptions::type>,
          .meaning =
              "name of the update rule; without optimizer: AdamW. As in DeepSpeed, Adam is "
              "AdamW too unless adam_w_mode is false"};
}

std::vector<Key> adam_rows() {
  return {
      {.path = "optimizer.params.lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = every,
       .target = in_optimizer<&optim::OptimizerOptions::learning_rate>,
       .meaning = "learning rate; not given: 0.01 for Adagrad, 0.02 for Muon"},
      {.path = "optimizer.params.weight_decay",
       .type = Type::number,
       .range = rates,
       .belongs_to = every,
       .target = in_optimizer<&optim::OptimizerOptions::weight_decay>,
       .meaning = "decay of weights towards zero; 0.01 with torch_adam, where it is not given"},
      {.path = "optimizer.params.betas",
       .type = Type::pair,
       .range = below_one,
       .belongs_to = with_betas,
       .target = betas,
       .meaning = "decay of the running averages of gradients and squared gradients; not given: "
                  "[0.9, 0.95] for Muon"},
      {.path = "optimizer.params.eps",
       .type = Type::number,
       .range = rates,
       .belongs_to = with_eps,
       .target = in_optimizer<&optim::OptimizerOptions::epsilon>,
       .meaning = "added to the denominator; not given: 1e-10 for Adagrad and Muon"},
      {.path = "optimizer.params.adam_w_mode",
       .type = Type::boolean,
       .belongs_to = with_adam,
       .target = in_optimizer<&optim::OptimizerOptions::adam_w_mode>,
       .meaning = "true: decoupled decay, also for Adam; AdamW ignores it"},
      {.path = "optimizer.params.bias_correction",
       .type = Type::boolean,
       .belongs_to = {"Adam", "AdamW", "Lamb"},
       .target = in_optimizer<&optim::OptimizerOptions::bias_correction>,
       .meaning = "correct the averages for their start at zero"},
  };
}

Key of(Names owners, Key key) {
  key.belongs_to = std::move(owners);
  return key;
}

std::vector<Key> other_adam_rows() {
  const Names cpu{"Adam", "AdamW", "Lion", "Adagrad", "Muon"};
  return {
      of(with_adam, no_effect("optimizer.params.torch_adam", Type::any, "false",
                              "the update is the same; only its default weight_decay is taken over",
                              "PyTorch's implementation")),
      of({"Adam", "AdamW", "Lamb"},
         refused("optimizer.params.amsgrad", Type::boolean, "false",
                 "DeepSpeed refuses it too; remove it", "the AMSGrad variant")),
      of({"Adam", "AdamW", "Lion", "Muon"},
         no_effect("optimizer.params.set_grad_none", Type::boolean, "true",
                   "gradients are zeroed at their first use", "how gradients are cleared")),
      of(cpu,
         no_effect("optimizer.params.fp32_optimizer_states", Type::boolean, "true",
                   "moments are fp32; bf16.bf16_optimizer_states makes them bf16", "fp32 moments")),
  };
}

std::vector<Key> sgd_rows() {
  return {
      {.path = "optimizer.params.momentum",
       .type = Type::number,
       .range = unit_interval,
       .belongs_to = with_momentum,
       .target = in_optimizer<&optim::OptimizerOptions::momentum>,
       .meaning = "share of the last update that is kept; not given: 0.95 for Muon"},
      {.path = "optimizer.params.dampening",
       .type = Type::number,
       .range = signed_rates,
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

std::vector<Key> lamb_and_adagrad_rows() {
  return {
      {.path = "optimizer.params.max_coeff",
       .type = Type::number,
       .range = rates,
       .belongs_to = lamb,
       .target = in_optimizer<&optim::OptimizerOptions::max_coeff>,
       .meaning = "most that a tensor's trust ratio |parameter| / |update| may be"},
      {.path = "optimizer.params.min_coeff",
       .type = Type::number,
       .range = rates,
       .belongs_to = lamb,
       .target = in_optimizer<&optim::OptimizerOptions::min_coeff>,
       .meaning = "least that it may be"},
      {.path = "optimizer.params.eps_inside_sqrt",
       .type = Type::boolean,
       .belongs_to = lamb,
       .target = in_optimizer<&optim::OptimizerOptions::eps_inside_sqrt>,
       .meaning = "add eps under the root"},
      {.path = "optimizer.params.lr_decay",
       .type = Type::number,
       .range = rates,
       .belongs_to = adagrad,
       .target = in_optimizer<&optim::OptimizerOptions::lr_decay>,
       .meaning = "step t runs with lr / (1 + (t - 1) lr_decay)"},
      {.path = "optimizer.params.initial_accumulator_value",
       .type = Type::number,
       .range = rates,
       .belongs_to = adagrad,
       .target = in_optimizer<&optim::OptimizerOptions::initial_accumulator_value>,
       .meaning = "sum of squares at the start"},
  };
}

std::vector<Key> muon_rows() {
  return {
      {.path = "optimizer.params.muon_lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = muon,
       .target = in_optimizer<&optim::OptimizerOptions::muon_lr>,
       .meaning = "instead of lr, of the matrices: parameters of two or more dimensions whose name "
                  "holds neither embed nor lm_head"},
      {.path = "optimizer.params.adam_lr",
       .type = Type::number,
       .range = rates,
       .belongs_to = muon,
       .target = in_optimizer<&optim::OptimizerOptions::adam_lr>,
       .meaning = "instead of lr, of all other parameters, which Adam updates; 0.0003 where lr is "
                  "not given either"},
      {.path = "optimizer.params.ns_method",
       .type = Type::choice,
       .choices = {"gram", "standard"},
       .belongs_to = muon,
       .target = in_optimizer<&optim::OptimizerOptions::ns_method>,
       .meaning = "form of the Newton-Schulz iteration, in fp32"},
      of(muon, refused("optimizer.params.per_head_muon", Type::boolean, "false",
                       "the heads of a model are not known here; remove it",
                       "each attention head as a matrix of its own")),
  };
}

// Parameters of optimizers whose type is refused: known, so that only the type is reported.
std::vector<Key> foreign_rows() {
  const Names one_bit_family{"OneBitAdam", "ZeroOneAdam", "OneBitLamb"};
  const Names zero_one{"ZeroOneAdam"}, one_bit_lamb{"OneBitLamb"};
  std::vector<Key> rows;
  const auto add = [&](const Names& owners, std::initializer_list<std::string_view> paths) {
    for (const auto path : paths)
      rows.push_back(of(owners, refused(path, Type::any, "", "its optimizer is not supported",
                                        "of optimizers that are refused")));
  };
  add(one_bit_family, {"optimizer.params.freeze_step", "optimizer.params.cuda_aware",
                       "optimizer.params.comm_backend_name"});
  add(zero_one, {"optimizer.params.var_freeze_step", "optimizer.params.var_update_scaler",
                 "optimizer.params.local_step_scaler", "optimizer.params.local_step_clipper"});
  add(one_bit_lamb, {"optimizer.params.coeff_beta", "optimizer.params.factor_max",
                     "optimizer.params.factor_min", "optimizer.params.factor_threshold"});
  return rows;
}

}  // namespace

std::vector<Key> optimizer_rows() {
  std::vector<Key> result{section("optimizer", "the update rule"), type_row(),
                          section("optimizer.params", "its parameters")};
  for (auto rows :
       {adam_rows, other_adam_rows, sgd_rows, lamb_and_adagrad_rows, muon_rows, foreign_rows})
    for (const Key& key : rows()) result.push_back(key);
  Key norm = in_range(
      removed(refused("optimizer.params.max_grad_norm", Type::number, "",
                      "DeepSpeed refuses it too: it is written gradient_clipping", says_nothing)),
      {.low = -1e30, .high = 1e30});
  norm.met = is_clipping;
  result.push_back(norm);
  result.push_back(no_effect("optimizer.legacy_fusion", Type::boolean, "false",
                             "about DeepSpeed's fp16 wrapper", "the old fused step"));
  return result;
}

}  // namespace zero::config_schemas
