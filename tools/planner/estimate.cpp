#include "tools/planner/estimate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tools/planner/deepspeed_estimate.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/engine/memory_plan.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

using namespace detail;

namespace {

constexpr std::int64_t planned_steps = 1'000'000;  // for schedulers that need the run's length
constexpr std::int64_t most_tokens = std::int64_t{1} << 22;

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

Config load(const Request& request, const PlanRow& row) {
  Text overrides = request.overrides;
  for (const auto& [path, value] : row.overrides) overrides[path] = value;
  if (request.micro_batch) {
    overrides["train_micro_batch_size_per_gpu"] = std::to_string(*request.micro_batch);
    overrides["train_batch_size"] = "null";
    overrides["elasticity.enabled"] = "false";
  }
  if (!request.has_config()) {
    overrides.try_emplace("bf16.enabled", request.cluster.device.gpu ? "true" : "false");
    overrides.try_emplace("optimizer.type", "AdamW");
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

Kernels kernels_of(const Request& request) {
  const bool gpu = request.cluster.device.gpu;
  return request.kernels.value_or(gpu ? Kernels::eager : Kernels::fused);
}

// The plan of rank 0, with the objects that it refers to.
struct PlannedRow {
  PlannedRow(const Request& request, const PlanRow& row)
      : config(load(request, row)),
        plan(request.shape.spec.declared(), config,
             {.rank = 0,
              .ranks = request.cluster.ranks,
              .on_gpu = request.cluster.device.gpu,
              .node_ranks =
                  request.cluster.per_node < request.cluster.ranks ? request.cluster.per_node : 0}),
        pass{{plan.batch.micro, request.tokens_per_sample()},
             request.recompute,
             kernels_of(request)} {}

  Config config;
  EnginePlan plan;
  Pass pass;
};

std::string name_of_tier(bool gpu) {
  return gpu ? "a GPU" : "the node's memory";
}

void judge(Estimate& estimate, const Cluster& cluster) {
  const Device& device = cluster.device;
  const double sharing = device.gpu ? 1 : cluster.ranks_on_node();
  const double needed =
      sharing * (static_cast<double>(estimate.bytes_per_rank) + device.reserved_bytes);
  const double in_host = cluster.ranks_on_node() * static_cast<double>(estimate.bytes_in_host);
  if (needed > device.memory_bytes)
    estimate.why_not = "needs " + byte_text(needed) + " of " + byte_text(device.memory_bytes) +
                       " in " + name_of_tier(device.gpu);
  else if (in_host > device.host_memory_bytes)
    estimate.why_not = "needs " + byte_text(in_host) + " of " +
                       byte_text(device.host_memory_bytes) + " in a node's host memory";
  estimate.fits = estimate.why_not.empty();
}

void fill_memory(Estimate& estimate, const Request& request, const PlannedRow& planned) {
  estimate.memory = memory_of(planned.plan, request.shape.spec.declared(), planned.config);
  const auto bytes = static_cast<int>(size_of(planned.plan.policy.precision.compute));
  estimate.activations = request.shape.activation_bytes(
      {planned.pass.tokens, bytes, request.recompute, request.cluster.device.gpu,
       std::max(1, static_cast<int>(request.cluster.processors()))});
  estimate.bytes_per_rank = total(estimate.memory.memory) + estimate.activations;
  estimate.bytes_in_host = total(estimate.memory.in_host);
  estimate.bytes_in_file = total(estimate.memory.in_file);
  estimate.deepspeed_bytes =
      deepspeed_estimate(request.shape, planned.plan.configured, planned.config.zero_optimization,
                         request.cluster.ranks);
  judge(estimate, request.cluster);
}

void fill_time(Estimate& estimate, const Request& request, const PlannedRow& planned) {
  const StepSimulation simulation(planned.plan, request.shape, request.cluster, planned.pass);
  estimate.step = simulation.run();
  const std::int64_t sequence = planned.pass.tokens.sequence;
  estimate.tokens_per_step = planned.pass.tokens.rows() * planned.plan.batch.accumulation;
  estimate.tokens_per_second =
      static_cast<double>(estimate.tokens_per_step) / estimate.step.seconds;
  const bool in_16_bits = size_of(planned.plan.policy.precision.compute) < 4;
  const double peak = request.cluster.device.flops(in_16_bits) * request.cluster.processors();
  estimate.mfu = estimate.tokens_per_second * request.shape.flops_per_token(sequence) / peak;
}

Estimate begun(const PlanRow& row) {
  return {.row = row.name, .overrides = row.overrides, .exact = row.exact};
}

// How the page shows an instruction: its color and its name in the legend.
struct Shown {
  const char* category;
  const char* kind;
};

Shown shown(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
      return {"compute", "forward and backward"};
    case Op::update:
    case Op::update_on_host:
      return {"optimizer", "optimizer"};
    case Op::gather:
    case Op::regather:
    case Op::spread:
      return {"all_gather", "gather"};
    case Op::reduce:
    case Op::reduce_late:
    case Op::accumulate:
      return {"reduce_scatter", "reduce"};
    case Op::agree:
    case Op::measure:
      return {"other", "norm and vote"};
    default:
      return {"offload_buffers", "copies of offload"};
  }
}

std::string label_of(const Instruction& instruction, const EnginePlan& plan,
                     const ModelShape& shape) {
  const std::string name = name_of(instruction.op);
  switch (target_of(instruction.op)) {
    case Target::unit:
      return name + " " + shape.spec.declared().units[instruction.target].name;
    case Target::flat_unit:
      return name + " " + plan.layout.flat_units[instruction.target].name;
    case Target::chunk:
      return name + " chunk " + std::to_string(instruction.target);
    default:
      return name;
  }
}

constexpr const char* stream_names[plan_stream_count] = {
    "compute", "communication", "from file", "to file", "host", "to GPU", "from GPU"};

}  // namespace

report::Timeline timeline_of(const Request& request, const PlanRow& row) {
  const PlannedRow planned(request, row);
  const SimulatedStep step =
      StepSimulation(planned.plan, request.shape, request.cluster, planned.pass).timeline();
  report::Timeline timeline{row.name, step.seconds, {}};
  for (int stream = 0; stream < plan_stream_count; ++stream) {
    report::Lane lane{stream_names[stream], {}};
    for (const SimulatedWork& work : step.work) {
      if (static_cast<int>(work.instruction->stream) != stream) continue;
      const auto [category, kind] = shown(work.instruction->op);
      lane.spans.push_back({category, kind,
                            label_of(*work.instruction, planned.plan, request.shape), work.begin,
                            work.end});
    }
    if (!lane.spans.empty()) timeline.lanes.push_back(std::move(lane));
  }
  return timeline;
}

std::int64_t total(const std::vector<MemoryUse>& uses) {
  std::int64_t bytes = 0;
  for (const MemoryUse& use : uses) bytes += use.planned;
  return bytes;
}

std::int64_t model_states(const Estimate& estimate) {
  std::int64_t bytes = 0;
  for (const auto* tier :
       {&estimate.memory.memory, &estimate.memory.in_host, &estimate.memory.in_file})
    for (const MemoryUse& use : *tier)
      for (const char* category : {"parameters", "gradients", "master_weights", "optimizer_state"})
        if (use.category == category) bytes += use.planned;
  return bytes;
}

config_schemas::Loaded load_config(const Request& request, const Text& overrides) {
  using config_schemas::Purpose;
  TrainerValues values;
  values.hidden_size = request.shape.hidden;
  values.total_steps = planned_steps;
  if (!request.config_file.empty())
    return config_schemas::load_file(request.config_file, overrides, values, Purpose::check);
  return config_schemas::load_text(request.has_config() ? request.config_text : "{}", "the config",
                                   overrides, values, Purpose::check);
}

Estimate estimate(const Request& request, const PlanRow& row) {
  Estimate result = begun(row);
  const PlannedRow planned(request, row);
  result.strategy = planned.plan.configured.strategy;
  fill_memory(result, request, planned);
  fill_time(result, request, planned);
  return result;
}

// A row that the engine refuses is reported as refused; if all are refused, this throws.
std::vector<Estimate> estimates(const Request& request, const std::vector<PlanRow>& rows) {
  load(request, {"config"});  // throws for an error in the file, which would affect every row
  std::vector<Estimate> results;
  bool any = false;
  for (const PlanRow& row : rows) {
    try {
      results.push_back(estimate(request, row));
      any = true;
    } catch (const ConfigError& error) {
      results.push_back(begun(row));
      results.back().refusal = error.what();
    }
  }
  if (!any && !results.empty()) throw ConfigError(results.front().refusal);
  return results;
}

std::optional<std::int64_t> hiding_tokens(const Request& request, const PlanRow& row) {
  PlannedRow planned(request, row);
  const std::int64_t sequence = planned.pass.tokens.sequence;
  const auto hides = [&](std::int64_t tokens) {
    planned.pass.tokens = tokens <= sequence ? Tokens{1, tokens}
                                             : Tokens{(tokens + sequence - 1) / sequence, sequence};
    const StepTimes step =
        StepSimulation(planned.plan, request.shape, request.cluster, planned.pass).run();
    return step.exposed <= hidden_share * step.seconds;
  };
  std::int64_t enough = 64;
  while (enough < most_tokens && !hides(enough)) enough *= 2;
  if (enough >= most_tokens) return std::nullopt;
  std::int64_t too_few = enough / 2;
  while (enough - too_few > enough / 20) {
    const std::int64_t middle = (enough + too_few) / 2;
    (hides(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace zero::planner
