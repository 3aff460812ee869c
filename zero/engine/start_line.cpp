// Engine::start_line().
#include <array>
#include <optional>
#include <string>

#include "zero/base/number_text.h"
#include "zero/base/text.h"
#include "zero/engine/engine_core.h"
#include "zero/engine/memory_plan.h"
#include "zero/plan/schedule_choice.h"

namespace zero {

namespace {

using namespace detail;

constexpr std::array states = {MemoryCategory::parameters, MemoryCategory::gradients,
                               MemoryCategory::master_weights, MemoryCategory::optimizer_state};

// Returns the bytes of `states` that a rank holds, in memory and in files.
std::int64_t held(const EnginePlan& plan, const Config& config) {
  const MemoryPlan memory = memory_of(plan, config);
  std::int64_t bytes = 0;
  for (const auto* tier : {&memory.memory, &memory.in_host, &memory.in_file})
    for (const MemoryUse& use : *tier)
      for (const MemoryCategory category : states)
        if (use.category == name_of(category)) bytes += use.planned;
  return bytes;
}

// The same training without anything that shards, offloads or encodes.
Config at_stage_0(Config config) {
  config.zero_optimization = {};
  config.zero_core.shard_group_size.reset();
  config.zero_core.optimizer_over_all_ranks = false;
  if (config.zero_core.gradient_sync == GradientSync::inner)
    config.zero_core.gradient_sync = GradientSync::automatic;
  config.zero_core.wire = {};
  config.zero_core.peer_copies = 0;
  return config;
}

// Returns nothing if the config has no form at stage 0.
std::optional<std::int64_t> held_at_stage_0(const TrainState& train) {
  try {
    const Config config = at_stage_0(train.config);
    PlanRank on = train.plan.on;
    on.strict = false;
    return held(EnginePlan(train.model, config, on), config);
  } catch (const ConfigError&) {
    return {};
  }
}

// "pipeline of 2 stages (interleaved, 2 runs each), ", or nothing.
std::string stages_text(const TrainState& train) {
  const int stages = train.plan.on.pipe.ranks;
  if (stages == 1) return "";
  return "pipeline of " + std::to_string(stages) + " stages (" +
         schedule_text(train.config.pipeline) + "), ";
}

}  // namespace

std::string Engine::start_line() const {
  const TrainState& train = core_->train();
  if (!train.config.zero_core.start_line) return "";
  std::string strategy = train.plan.configured.strategy;
  if (!strategy.starts_with("stage"))
    strategy =
        "stage " + std::to_string(train.config.zero_optimization.stage) + " (" + strategy + ")";
  const Device& device = train.runtime.device();
  const double limit = train.config.gradient_clipping;
  const std::int64_t here = held(train.plan, train.config);
  const std::optional<std::int64_t> at_0 = held_at_stage_0(train);
  return "zerocore " ZERO_VERSION ": " + strategy + ", " +
         (device.is_host() ? "CPU" : device.describe()) + ", " + train.runtime.world().describe() +
         ", " + stages_text(train) +
         (limit > 0 ? "clipping " + shortest_text(limit) : "no clipping") + ", " + byte_text(here) +
         " of states per rank" +
         (at_0 && *at_0 != here ? " (stage 0: " + byte_text(*at_0) + ")" : "");
}

}  // namespace zero
