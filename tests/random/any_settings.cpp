// Settings drawn without checking that they make sense.
#include <string>
#include <utility>
#include <vector>

#include "tests/random/settings.h"

namespace random_draws {

namespace {

struct Choice {
  const char* key;
  std::vector<std::string> values;
};

const std::vector<std::string> truth = {"true", "false"}, counts = {"0", "1", "2", "3", "4", "100"};
const std::vector<std::string> formats = {"none", "bf16", "fp8_e4m3", "mxfp8", "int8", "int4", ""};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {"zero_optimization.stage", {"0", "1", "2", "3", "3", "3"}},
      {"zero_optimization.mics_shard_size", counts},
      {"zero_optimization.zero_hpz_partition_size", counts},
      {"zero_optimization.reduce_bucket_size", {"1", "100", "1e9"}},
      {"zero_optimization.allgather_bucket_size", {"0", "1", "100", "1e15"}},
      {"zero_optimization.stage3_prefetch_bucket_size", counts},
      {"zero_optimization.stage3_max_live_parameters", counts},
      {"zero_optimization.stage3_max_reuse_distance", counts},
      {"zero_optimization.stage3_param_persistence_threshold", counts},
      {"zero_optimization.stage3_model_persistence_threshold", counts},
      {"zero_optimization.zero_quantized_weights", truth},
      {"zero_optimization.zero_quantized_nontrainable_weights", truth},
      {"zero_optimization.zero_quantized_gradients", truth},
      {"zero_optimization.offload_optimizer.device", {"none", "cpu", "nvme"}},
      {"zero_optimization.offload_optimizer.ratio", {"0", "1", "0.3"}},
      {"zero_optimization.offload_optimizer.buffer_count", counts},
      {"zero_optimization.offload_param.device", {"none", "cpu", "nvme"}},
      {"zero_optimization.offload_param.max_in_cpu", counts},
      {"zero_optimization.offload_param.buffer_count", counts},
      {"zero_optimization.offload_param.buffer_size", counts},
      {"zero_core.reshard_after_forward", truth},
      {"zero_core.optimizer_over_all_ranks", truth},
      {"zero_core.gradient_sync", {"each", "last", "inner"}},
      {"zero_core.shard_group_size", {"node", "1", "2", "3", "4"}},
      {"zero_core.reduce_group_size", {"node", "1", "2", "3", "100", "[2, 4]", "[1, 2, 4]", "[1]"}},
      {"zero_core.offload_chunk_bytes", {"1", "5000", "1e15"}},
      {"zero_core.offload_cache_bytes", {"0", "1", "5000", "1e15"}},
      {"zero_core.offload_keep_bytes", {"0", "5000", "1e15"}},
      {"zero_core.offload_step", {"host", "device", "both"}},
      {"zero_core.offload_host_rate", {"1e6", "120e9", "1e15"}},
      {"zero_core.offload_bus_rate", {"1e6", "55e9", "1e15"}},
      {"zero_core.verify_every", counts},
      {"zero_core.verify_comm", truth},
      {"zero_core.deterministic", truth},
      {"zero_core.wire.gather", formats},
      {"zero_core.wire.reduce", formats},
      {"zero_core.wire.gather_inside", formats},
      {"zero_core.wire.reduce_inside", formats},
      {"zero_core.wire.block_size", {"32", "96", "2048"}},
      {"zero_core.wire.max_error", {"0", "0.1"}},
      {"zero_core.param_groups.biases.momentum", {"0", "0.9", "1"}},
      {"zero_core.param_groups.biases.lr", {"0", "0.5"}},
      {"bf16.enabled", truth},
      {"bf16.bf16_master_weights_and_grads", truth},
      {"bf16.bf16_optimizer_states", truth},
      {"fp16.enabled", truth},
      {"fp16.loss_scale", {"0", "1", "128", "1e30"}},
      {"fp16.initial_scale_power", {"0", "8", "30", "127"}},
      {"fp16.min_loss_scale", {"0", "1", "1e30"}},
      {"fp16.hysteresis", counts},
      {"communication_data_type", {"fp16", "bf16", "fp32", "null"}},
      {"data_types.grad_accum_dtype", {"fp16", "bf16", "fp32"}},
      {"optimizer.type", {"AdamW", "Lion", "SGD", "Lamb", "Muon", "Adafactor", "Adagrad", "Adam"}},
      {"optimizer.params.lr", {"0", "0.01", "1e6"}},
      {"optimizer.params.momentum", {"0", "0.9", "1"}},
      {"optimizer.params.betas", {"[0.9, 0.999]", "[0, 0]"}},
      {"scheduler.type", {"WarmupLR", "OneCycle", "LRRangeTest", "WarmupCosineLR"}},
      {"scheduler.params.warmup_num_steps", counts},
      {"scheduler.params.total_num_steps", counts},
      {"gradient_clipping", {"0", "1", "-1", "1e-30", "1e30"}},
      {"prescale_gradients", truth},
      {"gradient_predivide_factor", {"0", "1", "3", "1e30"}},
      {"gradient_allreduce_op", {"mean", "sum"}},
      {"gradient_accumulation_steps", {"1", "2"}},
      {"train_batch_size", {"2", "12", "24"}},
      {"aio.block_size", {"1", "4096", "1073741824"}},
      {"aio.queue_depth", {"1", "65536"}},
      {"checkpoint.writer.decoupled", truth},
      {"zero_core.async_staging_bytes", {"0", "1", "1000", "1e15"}},
  };
  return all;
}

}  // namespace

Setting draw_any(Dice& dice, Terms& terms, const std::string& directory) {
  terms = {};
  terms.ranks = dice.between(1, 6);
  terms.dims = {.vocabulary = dice.between(2, 20),
                .channels = dice.between(1, 12),
                .blocks = dice.between(1, 3),
                .batch = 2};
  terms.keys["train_micro_batch_size_per_gpu"] = "2";
  terms.keys["zero_core.time_limit_seconds"] = "60";
  Setting setting;
  setting.executor = dice.text({"inline", "worker"});
  setting.strict = dice.one_in(6);
  setting.looks = dice.one_in(3);
  for (int i = dice.between(1, 6); i > 0; --i) {
    const Choice& choice = dice.of(choices());
    setting.keys[choice.key] = dice.of(choice.values);
  }
  if (setting.keys.contains("zero_optimization.offload_optimizer.device") && !dice.one_in(6))
    setting.keys["zero_optimization.offload_optimizer.nvme_path"] = directory;
  if (setting.keys.contains("zero_optimization.offload_param.device") && !dice.one_in(6))
    setting.keys["zero_optimization.offload_param.nvme_path"] = directory;
  return setting;
}

}  // namespace random_draws
