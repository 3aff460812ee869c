// A request's plan at a row, made by the engine's own code.
#pragma once

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

// Returns a rank's place in the request's cluster.
detail::PlanRank place_of(const Request& request, int rank);

// The plan of rank 0, with the objects that the plan refers to. The request must outlive this
// object.
struct PlannedRow {
  // Throws ConfigError if the config cannot be read, or cannot be used with these ranks.
  PlannedRow(const Request& request, const PlanRow& row);

  Config config;
  detail::EnginePlan plan;
  Pass pass;
};

}  // namespace zero::planner
