// Conclusions from estimates: the row to choose, and what to change if none fits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/planner/estimate.h"

namespace zero::planner {

struct Recommendation {
  std::optional<std::size_t> row;  // index of the estimate; nothing if none fits
  std::string reason;              // a sentence or two
};
// The fastest exact row that fits. Rows within 2 % of it count as equal, and the one that comes
// first among them is chosen, since lists begin with the simplest.
Recommendation recommend(const std::vector<Estimate>& estimates);

// A change of the request with which it fits.
struct Change {
  std::string what;  // "zero_optimization.stage 3", "--recompute"
  Estimate estimate;
};
// The `most` cheapest changes, by predicted step time per token, with which the request would fit.
// Single changes come first; two and three at once are tried only if there are too few of them.
std::vector<Change> cheapest_changes(const Request& request, std::size_t most);

// For a run that has no memory at its start: planned against available, and the three cheapest
// changes that would fit, each with its predicted cost in time. Available: the memory of the
// request's device.
std::string shortage_text(const Request& request);

// Cost of training on a number of tokens with an estimate.
struct RunCost {
  double hours = 0, price = 0;
};
RunCost cost_of(const Estimate& estimate, int ranks, double tokens, double price_per_hour);

// The cheapest number of ranks for a row, among whole nodes up to the request's, that fits and ends
// within the deadline; nothing if there is none.
struct CheapestShape {
  int ranks = 0;
  Estimate estimate;
  RunCost cost;
};
struct Budget {
  double tokens = 0, price_per_hour = 0, deadline_hours = 0;  // of the run; 0: no deadline
};
std::optional<CheapestShape> cheapest_shape(const Request& request, const Budget& budget);

}  // namespace zero::planner
