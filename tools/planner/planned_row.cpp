#include "tools/planner/planned_row.h"

#include <algorithm>
#include <string>

#include "config_schemas/overrides.h"
#include "zero/runtime/strict_mode.h"

namespace zero::planner {
namespace {

constexpr std::int64_t planned_steps = 1'000'000;  // for schedulers that need the run's length

// Rows with offload to a file need a path, although a plan opens no file.
constexpr const char* some_path = "/local_nvme";

void clear_strategy(Config& config, const PlanRow& row) {
  const auto sets = [&](const std::string& key) {
    return std::ranges::any_of(row.overrides, [&](const auto& each) {
      return each.first == key || each.first.starts_with(key + ".");
    });
  };
  const auto& [group, over_all, mics, second_copy, wire] = strategy_keys;
  if (!sets(group) && !sets(mics)) config.zero_core.shard_group_size.reset();
  if (!sets(over_all)) config.zero_core.optimizer_over_all_ranks = false;
  if (!sets(mics)) config.zero_optimization.mics_shard_size = -1;
  if (!sets(second_copy)) config.zero_optimization.hpz_partition_size = 1;
  if (!sets(wire)) config.zero_core.wire = {};
}

Kernels kernels_of(const Request& request) {
  const bool gpu = request.cluster.device.gpu;
  return request.kernels.value_or(gpu ? Kernels::eager : Kernels::fused);
}

}  // namespace

Config row_config(const Request& request, const PlanRow& row) {
  Text overrides = request.overrides;
  for (const auto& [path, value] : row.overrides) overrides[path] = value;
  if (request.micro_batch) {
    overrides["train_micro_batch_size_per_gpu"] = std::to_string(*request.micro_batch);
    overrides["train_batch_size"] = "null";
    overrides["elasticity.enabled"] = "false";
  }
  Config config = load_config(request, overrides).config;
  if (config.pipeline.stages > 1)
    throw ConfigError("pipeline.stages is " + std::to_string(config.pipeline.stages) +
                      ", and plans are of ranks that each have all units: add --set "
                      "pipeline.stages=1, and give --ranks that of one stage");
  BatchOptions& batch = config.batch;
  if (!batch.given()) batch.train_micro_batch_size_per_gpu = 1;
  if (row.complete()) clear_strategy(config, row);
  if (config.scheduler.total_num_steps == 0) config.scheduler.total_num_steps = planned_steps;
  for (std::string* path : {&config.zero_optimization.offload_optimizer.nvme_path,
                            &config.zero_optimization.offload_param.nvme_path})
    if (path->empty()) *path = some_path;
  return config;
}

config_schemas::Loaded load_config(const Request& request, const Text& overrides) {
  using config_schemas::Purpose;
  TrainerValues values;
  values.hidden_size = request.shape.hidden;
  values.total_steps = planned_steps;
  if (!request.config_file.empty())
    return config_schemas::load_file(request.config_file, overrides, values, Purpose::check);
  return config_schemas::load_text(
      request.has_config() ? request.config_text : default_config(request), "the config", overrides,
      values, Purpose::check);
}

std::string default_config(const Request& request) {
  const bool bf16 =
      request.cluster.device.gpu && !config_schemas::gives(request.overrides, "fp16.enabled");
  return R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}})" +
         std::string(bf16 ? R"(, "bf16": {"enabled": true}})" : "}");
}

detail::PlanRank place_of(const Request& request, int rank) {
  const Cluster& cluster = request.cluster;
  return {.rank = rank,
          .ranks = cluster.ranks,
          .on_gpu = cluster.device.gpu,
          .strict = detail::strict_mode(),
          .node_ranks = cluster.per_node < cluster.ranks ? cluster.per_node : 0};
}

PlannedRow::PlannedRow(const Request& request, const PlanRow& row)
    : config(row_config(request, row)),
      plan(request.shape.spec.declared(), config, place_of(request, 0)),
      pass{{plan.batch.micro, request.tokens_per_sample()},
           request.recompute,
           kernels_of(request),
           config.zero_core.recompute_every} {}

}  // namespace zero::planner
