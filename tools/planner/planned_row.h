// A request's plan at one row, made by the engine's own code.
#pragma once

#include "tools/planner/plan_rows.h"
#include "tools/planner/request.h"
#include "tools/planner/step_simulation.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

// Reads the request's config, or the default one, with these overrides. Throws ConfigError.
config_schemas::Loaded load_config(const Request& request, const Text& overrides);
// Returns the config, as JSON, of a request without one: AdamW, on GPUs with bf16.
std::string default_config(const Request& request);
// Reads the request's config as the row changes it. Throws ConfigError for an error in the file.
Config row_config(const Request& request, const PlanRow& row);

// Returns a rank's place in the request's cluster.
detail::PlanRank place_of(const Request& request, int rank);

// The plan of rank 0, with the objects that it refers to. The request must outlive it.
struct PlannedRow {
  // Throws ConfigError if the config cannot be read, or cannot be used with these ranks.
  PlannedRow(const Request& request, const PlanRow& row);

  Config config;
  detail::EnginePlan plan;
  Pass pass;
};

}  // namespace zero::planner
