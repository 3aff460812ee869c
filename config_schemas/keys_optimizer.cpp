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

const Names adam{"Adam", "AdamW"}, sgd{"SGD"}, every{"Adam", "AdamW", "SGD"};

constexpr std::string_view later = "not supported by this version; use AdamW, Adam or SGD";
constexpr std::string_view one_bit =
    "a 1-bit optimizer, which DeepSpeed removed in 0.19.7; use Adam or Lamb's successor AdamW";
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
          .refused_choices = {{"Lion", later},
                              {"Adagrad", later},
                              {"Lamb", later},
                              {"Muon", later},
                              {"OneBitAdam", one_bit},
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
       .range = not_negative,
       .belongs_to = every,
       .target = in_optimizer<&optim::OptimizerOptions::learning_rate>,
       .meaning = "learning rate"},
      {.path = "optimizer.params.weight_decay",
       .type = Type::number,
       .range = not_negative,
       .belongs_to = every,
       .target = in_optimizer<&optim::OptimizerOptions::weight_decay>,
       .meaning = "decay of weights towards zero; 0.01 with torch_adam, where it is not given"},
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
  };
}

Key of(Names owners, Key key) {
  key.belongs_to = std::move(owners);
  return key;
}

std::vector<Key> other_adam_rows() {
  return {
      of(adam, no_effect("optimizer.params.torch_adam", Type::any, "false",
                         "the update is the same; only its default weight_decay is taken over",
                         "PyTorch's implementation")),
      of(adam, refused("optimizer.params.amsgrad", Type::boolean, "false",
                       "DeepSpeed refuses it too; remove it", "the AMSGrad variant")),
      of(adam, no_effect("optimizer.params.set_grad_none", Type::boolean, "true",
                         "gradients are zeroed at their first use", "how gradients are cleared")),
      of(adam,
         refused("optimizer.params.fp32_optimizer_states", Type::boolean, "true",
                 "not supported by this version: moments are fp32; remove it", "fp32 moments")),
  };
}

std::vector<Key> sgd_rows() {
  return {
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

// Parameters of optimizers whose type is refused: known, so that only the type is reported.
std::vector<Key> foreign_rows() {
  const Names lamb{"Lamb", "OneBitLamb"}, muon{"Muon"}, adagrad{"Adagrad"};
  const Names one_bit_family{"OneBitAdam", "ZeroOneAdam", "OneBitLamb"};
  const Names zero_one{"ZeroOneAdam"}, one_bit_lamb{"OneBitLamb"};
  std::vector<Key> rows;
  const auto add = [&](const Names& owners, std::initializer_list<std::string_view> paths) {
    for (const auto path : paths)
      rows.push_back(of(owners, refused(path, Type::any, "", "its optimizer is not supported",
                                        "of optimizers that are refused")));
  };
  add(lamb, {"optimizer.params.max_coeff", "optimizer.params.min_coeff",
             "optimizer.params.eps_inside_sqrt"});
  add(one_bit_family, {"optimizer.params.freeze_step", "optimizer.params.cuda_aware",
                       "optimizer.params.comm_backend_name"});
  add(zero_one, {"optimizer.params.var_freeze_step", "optimizer.params.var_update_scaler",
                 "optimizer.params.local_step_scaler", "optimizer.params.local_step_clipper"});
  add(one_bit_lamb, {"optimizer.params.coeff_beta", "optimizer.params.factor_max",
                     "optimizer.params.factor_min", "optimizer.params.factor_threshold"});
  add(muon, {"optimizer.params.muon_lr", "optimizer.params.adam_lr", "optimizer.params.ns_method",
             "optimizer.params.per_head_muon"});
  add(adagrad, {"optimizer.params.lr_decay", "optimizer.params.initial_accumulator_value"});
  return rows;
}

}  // namespace

std::vector<Key> optimizer_rows() {
  std::vector<Key> result{section("optimizer", "the update rule"), type_row(),
                          section("optimizer.params", "its parameters")};
  for (auto rows : {adam_rows, other_adam_rows, sgd_rows, foreign_rows})
    for (const Key& key : rows()) result.push_back(key);
  Key norm =
      gone(refused("optimizer.params.max_grad_norm", Type::number, "",
                   "DeepSpeed refuses it too: it is written gradient_clipping", says_nothing));
  norm.met = is_clipping;
  result.push_back(norm);
  for (const auto path :
       {"optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.betas"})
    result.push_back(no_effect(path, Type::any, "",
                               "DeepSpeed does not read it here: it belongs in optimizer.params",
                               says_nothing));
  result.push_back(no_effect("optimizer.legacy_fusion", Type::boolean, "false",
                             "about DeepSpeed's fp16 wrapper", "the old fused step"));
  return result;
}

}  // namespace zero::config_schemas
