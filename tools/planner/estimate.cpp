#include "tools/planner/estimate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "optim/rule_table.h"
#include "tools/planner/deepspeed_estimate.h"
#include "tools/planner/planned_row.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/engine/memory_plan.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

using namespace detail;

namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 22;

// Returns whether ranks may keep different optimizer states: those of the matrices in their slices.
bool has_states_of_matrices(const optim::OptimizerOptions& options) {
  const optim::UpdateScope scope = optim::rule_of(options).scope;
  return scope == optim::UpdateScope::tensor_factors || scope == optim::UpdateScope::whole_matrices;
}

// Returns the memory of the rank of a stage that needs the most. Planned ranks are spread evenly.
MemoryPlan largest_memory(const Request& request, const PlannedRow& planned,
                          const PlannedStage& stage) {
  MemoryPlan largest = memory_of(stage.plan, planned.config);
  const int count = has_states_of_matrices(planned.config.optimizer) ? request.planned_ranks
                                                                     : request.planned_alike;
  const int last = planned.cluster.ranks - 1, others = std::min(last, count - 1);
  for (int i = 1; i <= others; ++i) {
    const auto rank = static_cast<int>(std::int64_t{last} * i / others);
    const EnginePlan plan(stage.model, planned.config,
                          place_of(planned.cluster, rank, stage.plan.on.pipe.rank));
    MemoryPlan memory = memory_of(plan, planned.config);
    if (total(memory.memory) > total(largest.memory)) largest = std::move(memory);
  }
  return largest;
}

// Returns what the stage has of the model's layers; none without a pipeline.
std::optional<StagePart> part_of(const ModelShape& shape, const PlannedStage& stage) {
  const AxisPlace& pipe = stage.plan.on.pipe;
  if (pipe.ranks == 1) return {};
  const auto is_block = [](const UnitWork& unit) { return unit.attention_width > 0; };
  const auto all = std::max<std::int64_t>(1, std::ranges::count_if(shape.work, is_block));
  const PlanInputs& inputs = stage.plan.inputs;
  std::int64_t held = 0;
  for (int unit = 0; unit < std::ssize(stage.work); ++unit)
    if (is_block(stage.work[unit])) held += inputs.room[stage.model.run_of(unit)].kept;
  return StagePart{shape.layers * held / all, pipe.rank + 1 == pipe.ranks};
}

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

// Refuses a micro-batch if its activations have too many bytes to be counted.
void check_tokens(const ModelShape& shape, const Tokens& tokens) {
  constexpr double most_bytes = 1e17, of_channel = 512, of_logit = 16;
  const double rows = static_cast<double>(tokens.batch) * static_cast<double>(tokens.sequence);
  const double layers = static_cast<double>(shape.hidden) * static_cast<double>(shape.layers);
  const auto logits = static_cast<double>(shape.vocabulary);
  if (rows * (of_channel * layers + of_logit * logits) < most_bytes) return;
  throw ConfigError("a micro-batch of " + std::to_string(tokens.batch) + " samples of " +
                    std::to_string(tokens.sequence) +
                    " tokens: expected one whose activations have less than 100 PB");
}

void fill_memory(Estimate& estimate, const Request& request, const PlannedRow& planned) {
  check_tokens(request.shape, planned.pass.tokens);
  const auto bytes = static_cast<int>(size_of(planned.plan().policy.precision.compute));
  for (const auto& stage : planned.stages) {
    MemoryPlan memory = largest_memory(request, planned, *stage);
    const std::int64_t activations = request.shape.activation_bytes(
        {planned.pass.tokens, bytes, request.recompute, request.cluster.device.gpu,
         std::max(1, static_cast<int>(request.cluster.processors())),
         part_of(request.shape, *stage)});
    const std::int64_t all = total(memory.memory) + activations;
    estimate.bytes_in_host = std::max(estimate.bytes_in_host, total(memory.in_host));
    estimate.bytes_in_file = std::max(estimate.bytes_in_file, total(memory.in_file));
    if (all <= estimate.bytes_per_rank) continue;
    estimate.bytes_per_rank = all;
    estimate.activations = activations;
    estimate.memory = std::move(memory);
  }
  if (estimate.stages == 1)
    estimate.deepspeed_bytes =
        deepspeed_estimate(request.shape, planned.plan().configured,
                           planned.config.zero_optimization, request.cluster.ranks);
  judge(estimate, request.cluster);
}

void fill_time(Estimate& estimate, const Request& request, const PlannedRow& planned) {
  estimate.step = times_of(planned);
  const std::int64_t sequence = planned.pass.tokens.sequence;
  estimate.tokens_per_step =
      static_cast<double>(planned.pass.tokens.rows() * planned.plan().batch.accumulation) /
      estimate.stages;
  estimate.tokens_per_second = estimate.tokens_per_step / estimate.step.seconds;
  const bool in_16_bits = size_of(planned.plan().policy.precision.compute) < 4;
  const double peak = request.cluster.device.flops(in_16_bits) * request.cluster.processors();
  estimate.mfu = estimate.tokens_per_second * request.shape.flops_per_token(sequence) / peak;
}

Estimate begun(const PlanRow& row) {
  return {.row = row.name, .overrides = row.overrides, .exact = row.exact};
}

}  // namespace

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

Estimate estimate(const Request& request, const PlanRow& row) {
  Estimate result = begun(row);
  const PlannedRow planned(request, row);
  result.strategy = planned.plan().configured.strategy;
  result.stages = planned.cluster.stages;
  result.pipeline = planned.config.pipeline;
  fill_memory(result, request, planned);
  fill_time(result, request, planned);
  return result;
}

// A row that the engine refuses is reported as refused; if all are refused, this throws.
std::vector<Estimate> estimates(const Request& request, const std::vector<PlanRow>& rows) {
  row_config(request, {"config"});  // throws for an error in the file, which would affect every row
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
    const StepTimes step = times_of(planned);
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
