#include "tools/planner/planned_row.h"

#include <algorithm>
#include <string>

#include "config_schemas/overrides.h"
#include "tools/planner/pipeline_simulation.h"
#include "zero/plan/pipeline.h"
#include "zero/plan/schedule_choice.h"
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

Cluster cluster_of_stage(const Cluster& all, int stages) {
  if (all.ranks % stages != 0)
    throw ConfigError("pipeline.stages is " + std::to_string(stages) + ", which does not divide " +
                      std::to_string(all.ranks) + " ranks: each stage has the same number");
  Cluster cluster = all;
  cluster.ranks = all.ranks / stages;
  cluster.stages = stages;
  return cluster;
}

// Returns the model as stages are cut from it. Units of models that declare no outputs pass on a
// value per token and channel.
detail::Model whole_model(const Request& request) {
  detail::Model model = request.shape.spec.declared();
  if (!model.has_outputs())
    for (int unit = 0; unit + 1 < std::ssize(model.units); ++unit)
      detail::declare_output(model, unit, {request.tokens_per_sample(), request.shape.hidden}, {});
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    model.units[unit].work = request.shape.work[unit].operations(request.tokens_per_sample());
  return model;
}

// Returns a result of the cut of a model into stages; faults of the model are those of the request.
template <class Body>
auto of_cut(const Body& body) {
  try {
    return body();
  } catch (const UsageError& error) {
    throw ConfigError(error.what());
  }
}

// Returns the row's config with a schedule in place of "best".
Config config_of(const Request& request, const PlanRow& row) {
  Config config = row_config(request, row);
  if (config.pipeline.schedule != "best") return config;  // without a copy of the model
  const auto stages = static_cast<int>(config.pipeline.stages);
  const int data_ranks = cluster_of_stage(request.cluster, stages).ranks;
  return of_cut([&] {
    return detail::with_schedule(std::move(config), whole_model(request), data_ranks, stages);
  });
}

std::vector<std::unique_ptr<PlannedStage>> stages_of(const Request& request, const Config& config,
                                                     const Cluster& cluster) {
  std::vector<std::unique_ptr<PlannedStage>> stages;
  if (cluster.stages == 1) {
    stages.push_back(std::make_unique<PlannedStage>(
        request.shape.spec.declared(), request.shape.work, config, place_of(cluster, 0, 0)));
    return stages;
  }
  const detail::Model whole = whole_model(request);
  const std::vector<int> first =
      of_cut([&] { return detail::first_units(whole, config.pipeline, cluster.stages); });
  for (int at = 0; at < cluster.stages; ++at) {
    detail::Model own = detail::stage_of(whole, first, {at, cluster.stages});
    std::vector<UnitWork> work;
    for (const detail::UnitDeclaration& unit : own.units)
      work.push_back(request.shape.work[whole.find_unit(unit.name)]);
    stages.push_back(std::make_unique<PlannedStage>(std::move(own), std::move(work), config,
                                                    place_of(cluster, 0, at)));
  }
  return stages;
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

detail::PlanRank place_of(const Cluster& cluster, int rank, int stage) {
  const int first = stage * cluster.ranks, last = first + cluster.ranks - 1;
  const bool on_one_node = first / cluster.per_node == last / cluster.per_node;
  const bool divides = cluster.ranks % cluster.per_node == 0;
  return {.rank = rank,
          .ranks = cluster.ranks,
          .on_gpu = cluster.device.gpu,
          .strict = detail::strict_mode(),
          .node_ranks = on_one_node ? 0
                        : divides   ? cluster.per_node
                                    : -1,
          .pipe = {stage, cluster.stages}};
}

PlannedStage::PlannedStage(detail::Model own, std::vector<UnitWork> of_units, const Config& config,
                           const detail::PlanRank& place)
    : model(std::move(own)), work(std::move(of_units)), plan(model, config, place) {}

PlannedRow::PlannedRow(const Request& request, const PlanRow& row)
    : config(config_of(request, row)),
      cluster(cluster_of_stage(request.cluster, static_cast<int>(config.pipeline.stages))),
      stages(stages_of(request, config, cluster)),
      pass{{plan().batch.micro, request.tokens_per_sample()},
           request.recompute,
           kernels_of(request),
           config.zero_core.recompute_every} {}

StepTimes times_of(const PlannedRow& planned) {
  if (planned.stages.size() > 1) return PipelineSimulation(planned).run();
  const PlannedStage& whole = *planned.stages.front();
  return StepSimulation(whole.plan, whole.work, planned.cluster, planned.pass).run();
}

}  // namespace zero::planner
