// Formats the planner's results: text of at most 100 columns, JSON, and the page of tools/report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/planner/advice.h"
#include "tools/planner/estimate.h"
#include "tools/report/comparison.h"

namespace zero::planner {

// All results of a call of the planner.
struct PlanResult {
  const Request& request;
  std::vector<Estimate> estimates = {};
  Recommendation recommendation = {};
  std::optional<std::int64_t> hiding_tokens = {};  // of the recommended row
  std::vector<std::string> reasons = {};           // of rows that send more than a plainer row
  std::vector<Change> changes = {};                // if no row fits
  std::optional<Budget> budget = {};               // the user's price and tokens
  std::optional<CheapestShape> cheapest = {};      // with a deadline
};

// Estimates all rows and draws the conclusions.
PlanResult make_plan(const Request& request, const std::vector<PlanRow>& rows,
                     const std::optional<Budget>& budget);

// Rows of a table: all, or those of the stages, the config, the recommendation and least memory.
enum class Rows { all, few };
std::string text_of(const PlanResult& result, Rows rows);
// Returns a table of memory by category and tier, for the rows that are not refused.
std::string memory_text(const PlanResult& result);
// Returns a JSON list of objects, one per row: row, ranks, bytes_per_rank, fits, bytes_inside_node,
// bytes_between_nodes, step_seconds, exposed_seconds, tokens_per_s_per_rank, mfu; and more.
std::string json_of(const PlanResult& result);
report::Comparison page_of(const PlanResult& result);

// Returns the user's config with the recommended row's keys, as JSON. Throws ConfigError if no row
// fits.
std::string config_of(const PlanResult& result);

}  // namespace zero::planner
