// Keys that are refused if their value requests an effect, and old names that are read as new
// names.
#include <charconv>

#include "config_schemas/keys.h"
#include "zero/plan/key_rows.h"

namespace zero::config_schemas {

using namespace config_keys;

namespace {

constexpr std::string_view every_rank =
    "ranks that share work would count as one in the batch, but every rank is a data-parallel rank "
    "here; write 1, and fit the batch to it";

// DeepSpeed also requires that data_types.param_dtype repeats the dtype of the model.
bool is_model_dtype(const Config& config, std::string_view shown) {
  std::string name = lower_case(shown);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (config.fp16_enabled) return name == "fp16" || name == "float16" || name == "half";
  return config.bf16_enabled ? name == "bf16" || name == "bfloat16"
                             : name == "fp32" || name == "float32" || name == "float";
}

// max_grad_norm may repeat the value of gradient_clipping.
bool is_clipping(const Config& config, std::string_view shown) {
  double value = 0;
  std::from_chars(shown.data(), shown.data() + shown.size(), value);
  return value == config.gradient_clipping;
}

// DeepSpeed 0.19 refuses these keys with any value, so a harmless value gets a notice.
void add_removed(RowList& rows) {
  constexpr std::string_view in_0_19_7 = "DeepSpeed removed it in 0.19.7; remove it";
  constexpr std::string_view in_0_19_8 = "DeepSpeed removed it in 0.19.8; remove it";
  rows.in(
      "", in_0_19_7,
      {block("compression_training", "quantization and pruning"),
       block("nebula", "a checkpoint service"), block("quantize_training", "quantized training"),
       block("sparse_attention", "sparse attention").with(&Key::on_by_presence, true)});
  rows.in("", in_0_19_8,
          {block("curriculum_learning", "a curriculum of sequence lengths"),
           block("eigenvalue", "eigenvalues of layers"),
           block("progressive_layer_drop", "dropped layers")});
  rows.in("", {block("amp", "Apex AMP", "DeepSpeed removed Apex AMP in 0.19.8; use bf16.enabled"),
               boolean("sparse_gradients", "false", "sparse gradients",
                       "DeepSpeed removed it in 0.19.8; gradients are dense"),
               boolean("graph_harvesting", "false", "device graphs",
                       "DeepSpeed removed it in 0.19.8")});
  rows.in("zero_optimization", {boolean("cpu-offload", "false", never_read,
                                        "no DeepSpeed release reads this spelling; it is written "
                                        "offload_optimizer.device")});
  rows.in("zero_optimization",
          {block("zeropp_loco_param", "error feedback of zero_quantized_gradients",
                 "DeepSpeed removed it in 0.19.8; remove it, or reduce in 8 bits by "
                 "zero_core.wire.reduce")});
  rows.in("optimizer.params", {plain(Type::number, "max_grad_norm", "", never_read,
                                     "DeepSpeed refuses it too: it is written gradient_clipping")
                                   .with(&Key::range, {.low = -1e30, .high = 1e30})
                                   .with(&Key::already_so, is_clipping)});
}

void add_unsupported(RowList& rows) {
  static constexpr std::string_view corrected[] = {"Adam", "AdamW", "Lamb"};
  static constexpr std::string_view muon[] = {"Muon"};
  rows.in("",
          {integer("tensor_parallel.autotp_size", {.low = 0, .high = most_ranks}, "0",
                   "ranks that share a tensor", every_rank)
               .harmless({"1"}),
           integer("elasticity.model_parallel_size", ranks, "1", "ranks that share a sample",
                   every_rank)
               .under("elasticity.enabled"),
           integer("sequence_parallel_size", ranks, "1", "ranks that share a sequence", every_rank),
           choice("data_types.param_dtype", dtype_names, "null", "dtype of parameters",
                  "must agree with fp16.enabled and bf16.enabled; remove it")
               .or_null()
               .with(&Key::already_so, is_model_dtype),
           boolean("zero_optimization.legacy_stage1", "false", "stage 1 of 2020",
                   "DeepSpeed removed this implementation; remove it"),
           boolean("optimizer.params.amsgrad", "false", "the AMSGrad variant",
                   "DeepSpeed refuses it too; remove it")
               .of(corrected),
           boolean("optimizer.params.per_head_muon", "false",
                   "each attention head as a matrix of its own",
                   "the heads of a model are not known here; remove it")
               .of(muon)});
}

// Parameters of optimizers with a refused type. Listed so that the user gets one message, about the
// type.
void add_foreign_optimizers(RowList& rows) {
  static constexpr std::string_view one_bit[] = {"OneBitAdam", "ZeroOneAdam", "OneBitLamb"};
  static constexpr std::string_view zero_one[] = {"ZeroOneAdam"}, lamb[] = {"OneBitLamb"};
  const auto add = [&](std::span<const std::string_view> types,
                       std::initializer_list<const char*> names) {
    for (const char* name : names)
      rows.in("optimizer.params", "its optimizer is not supported",
              {any(name, "of optimizers that are refused").of(types)});
  };
  add(one_bit, {"freeze_step", "cuda_aware", "comm_backend_name"});
  add(zero_one,
      {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"});
  add(lamb, {"coeff_beta", "factor_max", "factor_min", "factor_threshold"});
}

}  // namespace

std::vector<Key> refused_keys() {
  RowList removed(Status::refused), others(Status::refused);
  add_removed(removed);
  add_unsupported(others);
  add_foreign_optimizers(others);
  std::vector<Key> keys = removed.take();
  for (Key& key : keys) key.removed = true;
  for (Key& key : others.take()) keys.push_back(std::move(key));
  return keys;
}

// The reason is the path of the present key.
std::vector<Key> replaced_keys() {
  RowList rows(Status::replaced);
  rows.in("",
          {any("bfloat16", "old name of bf16, read if bf16 is absent", "bf16"),
           boolean("zero_optimization.cpu_offload", "", "old form of offload_optimizer.device cpu",
                   "zero_optimization.offload_optimizer")
               .or_null(),
           boolean("zero_optimization.cpu_offload_param", "",
                   "old form of offload_param.device cpu", "zero_optimization.offload_param")
               .also("cpu_offload_params")
               .or_null(),
           any("zero_optimization.stage3_gather_fp16_weights_on_model_save", "its name until 2022",
               "zero_optimization.stage3_gather_16bit_weights_on_model_save")});
  return rows.take();
}

}  // namespace zero::config_schemas
