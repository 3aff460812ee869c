// Rows about dtypes: fp16, bf16, data_types, torch_autocast and what travels between ranks.
#include <string>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr double largest_scale = 0x1p127;  // a power of two that fp32 has

// What data_types.param_dtype must be, in DeepSpeed too.
bool is_model_dtype(const Config& config, std::string_view shown) {
  std::string name = lower_case(shown);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (config.fp16_enabled) return name == "fp16" || name == "float16" || name == "half";
  return config.bf16_enabled ? name == "bf16" || name == "bfloat16"
                             : name == "fp32" || name == "float32" || name == "float";
}

// Acts with the dtype enabled, whose section it stands in.
template <auto member>
Key low_precision(std::string_view path, std::string_view meaning) {
  return {.path = path, .type = Type::boolean, .target = top<member>, .meaning = meaning};
}

std::vector<Key> fp16_rows() {
  return {
      section("fp16", "16-bit parameters and gradients (half)"),
      {.path = "fp16.enabled",
       .type = Type::boolean,
       .target = top<&Config::fp16_enabled>,
       .meaning = "compute in fp16 with fp32 master weights and a scaled loss"},
      under("fp16.enabled",
            no_effect("fp16.auto_cast", Type::boolean, "false",
                      "the program hands its inputs to its own kernels", "cast inputs to fp16")),
      {.path = "fp16.loss_scale",
       .type = Type::number,
       .range = {.low = 0, .high = largest_scale},
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::loss_scale>,
       .meaning = "factor of the loss; 0: found while training"},
      {.path = "fp16.initial_scale_power",
       .type = Type::integer,
       .range = {.low = 0, .high = 127},
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::initial_scale_power>,
       .meaning = "the first dynamic scale is 2 to this power"},
      {.path = "fp16.loss_scale_window",
       .type = Type::integer,
       .range = counts,
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::loss_scale_window>,
       .meaning = "steps without overflow after which the scale doubles"},
      {.path = "fp16.hysteresis",
       .type = Type::integer,
       .range = any_count,
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::hysteresis>,
       .meaning = "the scale halves from the overflow with this number on; below 1: never"},
      {.path = "fp16.consecutive_hysteresis",
       .type = Type::boolean,
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::consecutive_hysteresis>,
       .meaning = "good steps refill the hysteresis"},
      {.path = "fp16.min_loss_scale",
       .type = Type::number,
       .range = {.low = 0, .high = largest_scale},
       .target = at<&Config::loss_scale, &optim::LossScaleOptions::min_loss_scale>,
       .meaning = "floor of the dynamic scale; an overflow there ends the run"},
      low_precision<&Config::fp16_master_weights_and_grads>(
          "fp16.fp16_master_weights_and_grads",
          "with fp16.enabled: the fp16 parameters are their own master weights, moments stay fp32"),
  };
}

std::vector<Key> bf16_rows() {
  std::vector<Key> rows = {
      {.path = "bf16", .nullable = true, .meaning = "16-bit parameters and gradients (bfloat16)"},
      {.path = "bf16.enabled",
       .type = Type::boolean,
       .target = top<&Config::bf16_enabled>,
       .meaning = "compute in bfloat16 with fp32 master weights"},
      no_effect("bf16.immediate_grad_update", Type::boolean, "false",
                "gradients are added where backward leaves them", "when gradients are added"),
      no_effect("bf16.check_grad_overflow", Type::boolean, "true",
                "a step with non-finite gradients is always skipped, on all ranks",
                "skip steps with non-finite gradients"),
      low_precision<&Config::bf16_master_weights_and_grads>(
          "bf16.bf16_master_weights_and_grads",
          "with bf16.enabled: the bf16 parameters are their own master weights"),
      low_precision<&Config::bf16_optimizer_states>(
          "bf16.bf16_optimizer_states", "moments in bf16 too; needs bf16_master_weights_and_grads"),
      {.path = "bfloat16",
       .type = Type::any,
       .status = Status::replaced,
       .reason = "bf16",
       .meaning = "old name of bf16, read where bf16 is absent"},
  };
  for (const auto path : {"bf16.loss_scale", "bf16.initial_scale_power", "bf16.loss_scale_window",
                          "bf16.hysteresis", "bf16.min_loss_scale"})
    rows.push_back(no_effect(path, Type::any, "",
                             "bfloat16 needs no loss scaling; DeepSpeed 0.19 refuses the key",
                             "copied from fp16"));
  for (const auto path : {"bf16.auto_cast", "fp16.opt_level", "fp16.fp16_scale_tolerance"})
    rows.push_back(no_effect(path, Type::any, "",
                             "older releases passed over it; DeepSpeed 0.19 refuses the key",
                             says_nothing));
  return rows;
}

Key like_model(Key key) {
  key.met = is_model_dtype;
  return or_null(std::move(key));
}

std::vector<Key> data_type_rows() {
  const std::vector<std::string_view> dtypes{
      "fp16",  "float16", "half",          "bf16",           "bfloat16",     "fp32",
      "float", "float32", "torch.float16", "torch.bfloat16", "torch.float32"};
  return {
      {.path = "communication_data_type",
       .type = Type::choice,
       .choices = {"fp16", "bf16", "fp32"},
       .any_case = true,
       .nullable = true,
       .target = top<&Config::communication_data_type>,
       .meaning = "dtype of gradients between ranks; null: the one that the model computes in"},
      one_of(no_effect("seq_parallel_communication_data_type", Type::choice, "fp32",
                       "acts with sequence parallelism only", "dtype between sequence ranks"),
             {"fp16", "bf16", "fp32"}, true),
      section("data_types", "dtypes of single parts"),
      {.path = "data_types.grad_accum_dtype",
       .type = Type::choice,
       .choices = dtypes,
       .refused_choices = {{"int8", "gradients are added up in fp32, bf16 or fp16"}},
       .nullable = true,
       .target = top<&Config::grad_accum_dtype>,
       .meaning = "dtype of sums of gradients over micro steps and of gradients at rest; null: the "
                  "one that the model computes in"},
      like_model(one_of(refused("data_types.param_dtype", Type::choice, "null",
                                "must be what fp16.enabled and bf16.enabled say; remove it",
                                "dtype of parameters"),
                        dtypes)),
      or_null(one_of(no_effect("data_types.buffer_dtype", Type::choice, "null",
                               "models have no buffers here", "dtype of buffers"),
                     dtypes)),
      no_effect("data_types.keep_in_fp32_modules", Type::any, "auto", "models have no buffers here",
                "buffers that stay in fp32"),
      section("torch_autocast", "PyTorch's automatic casts"),
      no_effect("torch_autocast.enabled", Type::boolean, "false",
                "about PyTorch's operations: kernels compute in the dtype of the parameters, which "
                "bf16.enabled chooses",
                "cast per operation"),
      under("torch_autocast.enabled",
            no_effect("torch_autocast.dtype", Type::text, "",
                      "acts with torch_autocast.enabled only", "dtype of the casts")),
      under("torch_autocast.enabled",
            or_null(no_effect("torch_autocast.lower_precision_safe_modules", Type::list, "null",
                              "acts with torch_autocast.enabled only", "modules to cast"))),
  };
}

}  // namespace

std::vector<Key> precision_rows() {
  std::vector<Key> result;
  for (auto rows : {fp16_rows, bf16_rows, data_type_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
