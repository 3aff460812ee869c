// A request's plan at a row, made by the engine's own code.
#pragma once

#include <memory>
#include <vector>

#include "tools/planner/plan_rows.h"
#include "tools/planner/request.h"
#include "tools/planner/step_simulation.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

// Reads the request's config, or the default config, with these overrides. Throws ConfigError.
config_schemas::Loaded load_config(const Request& request, const Text& overrides);
// Returns the config, as JSON, for a request without a config: AdamW, on GPUs with bf16.
std::string default_config(const Request& request);
// Reads the request's config with the row's changes. Throws ConfigError for an error in the file.
Config row_config(const Request& request, const PlanRow& row);

// Returns the place of a data rank of a stage on the cluster of a stage.
detail::PlanRank place_of(const Cluster& cluster, int rank, int stage);

// A stage of a pipeline, or the whole model, with the plan of data rank 0.
struct PlannedStage {
  PlannedStage(detail::Model own, std::vector<UnitWork> of_units, const Config& config,
               const detail::PlanRank& place);

  detail::Model model;
  std::vector<UnitWork> work;  // of the model's units
  detail::EnginePlan plan;
};

// The plans of a row, with the objects that these refer to. The request must outlive this object.
struct PlannedRow {
  // Throws ConfigError if the config cannot be read, or cannot be used with these ranks.
  PlannedRow(const Request& request, const PlanRow& row);

  // The plan of the first stage has what all stages share, such as the batch.
  const detail::EnginePlan& plan() const { return stages.front()->plan; }

  Config config;
  Cluster cluster;  // whose ranks are those of a stage
  std::vector<std::unique_ptr<PlannedStage>> stages;
  Pass pass;
};

// Simulates a step of all stages.
StepTimes times_of(const PlannedRow& planned);

}  // namespace zero::planner
