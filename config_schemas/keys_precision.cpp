// Rows about dtypes: fp16, bf16, data_types, torch_autocast and what travels between ranks.
#include <string>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

// Parameters, gradients at rest and the wire have one dtype.
bool is_model_dtype(const Config& config, std::string_view shown) {
  std::string name = lower_case(shown);
  if (name.starts_with("torch.")) name.erase(0, 6);
  return config.bf16_enabled ? name == "bf16" || name == "bfloat16"
                             : name == "fp32" || name == "float32" || name == "float";
}

constexpr std::string_view no_fp16 =
    "not supported by this version: fp16 and its loss scaling; use bf16.enabled, or fp32";
constexpr std::string_view under_fp16 = "acts with fp16.enabled only";
constexpr std::string_view fp32_masters =
    "not supported by this version: master weights and moments are fp32; remove it";

std::vector<Key> fp16_rows() {
  const std::string_view on = "fp16.enabled";
  std::vector<Key> rows = {
      no_effect("fp16.auto_cast", Type::boolean, "false", under_fp16, "cast inputs to fp16"),
      in_range(no_effect("fp16.loss_scale", Type::number, "0", under_fp16,
                         "factor of the loss; 0: found while training"),
               not_negative),
      no_effect("fp16.initial_scale_power", Type::integer, "16", under_fp16,
                "the first dynamic scale is 2 to this power"),
      no_effect("fp16.loss_scale_window", Type::integer, "1000", under_fp16,
                "steps without overflow after which the scale doubles"),
      no_effect("fp16.hysteresis", Type::integer, "2", under_fp16,
                "overflows before the scale is halved"),
      no_effect("fp16.consecutive_hysteresis", Type::boolean, "false", under_fp16,
                "good steps refill the hysteresis"),
      no_effect("fp16.min_loss_scale", Type::integer, "1", under_fp16, "floor of the scale"),
      refused("fp16.fp16_master_weights_and_grads", Type::boolean, "false", fp32_masters,
              "fp16 master weights and gradients"),
  };
  for (Key& row : rows) row.switched_by = on;
  rows.insert(rows.begin(), section("fp16", "16-bit parameters and gradients (half)"));
  rows.insert(rows.begin() + 1, refused(on, Type::boolean, "false", no_fp16,
                                        "compute in fp16 with fp32 master weights"));
  return rows;
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
      under("bf16.enabled", refused("bf16.bf16_master_weights_and_grads", Type::boolean, "false",
                                    fp32_masters, "bf16 master weights and gradients")),
      under("bf16.enabled", refused("bf16.bf16_optimizer_states", Type::boolean, "false",
                                    fp32_masters, "bf16 moments")),
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
  return rows;
}

Key like_model(Key key) {
  key.met = is_model_dtype;
  return or_null(std::move(key));
}

std::vector<Key> data_type_rows() {
  constexpr std::string_view one_dtype =
      "not supported by this version: sums travel and rest in the model's dtype (bf16 with "
      "bf16.enabled, else fp32), added in fp32; remove it";
  const std::vector<std::string_view> dtypes{
      "fp16",  "float16", "half", "bf16",          "bfloat16",       "fp32",
      "float", "float32", "int8", "torch.float16", "torch.bfloat16", "torch.float32"};
  return {
      like_model(one_of(refused("communication_data_type", Type::choice, "null", one_dtype,
                                "dtype of gradients between ranks"),
                        {"fp16", "bf16", "fp32"}, true)),
      one_of(no_effect("seq_parallel_communication_data_type", Type::choice, "fp32",
                       "acts with sequence parallelism only", "dtype between sequence ranks"),
             {"fp16", "bf16", "fp32"}, true),
      section("data_types", "dtypes of single parts"),
      like_model(one_of(refused("data_types.grad_accum_dtype", Type::choice, "null", one_dtype,
                                "dtype in which gradients are accumulated"),
                        dtypes)),
      like_model(one_of(refused("data_types.param_dtype", Type::choice, "null",
                                "must be what bf16.enabled says; remove it", "dtype of parameters"),
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
