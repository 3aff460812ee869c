// Draws conclusions from estimates: the row to choose, and changes to try if no row fits.
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
// Returns the fastest exact row that fits. Rows within 2 % of it count as equally fast; the first
// of them is chosen, because lists begin with the simplest strategy.
Recommendation recommend(const std::vector<Estimate>& estimates);

// A change with which the request would fit.
struct Change {
  std::string what;  // "zero_optimization.stage 3", "--recompute"
  Estimate estimate;
};
// Returns at most `most` changes with which the request would fit, the cheapest first, by predicted
// step time per token. Tries two and three changes at once only if too few single ones suffice.
std::vector<Change> cheapest_changes(const Request& request, std::size_t most);

// Returns the advice for a run that runs out of memory at start: the planned and the available
// memory (that of the request's device), and the three cheapest changes that would fit, each with
// its predicted step time.
std::string shortage_text(const Request& request);

// The cost of a run over a number of tokens.
struct RunCost {
  double hours = 0, price = 0;
};
RunCost cost_of(const Estimate& estimate, int ranks, double tokens, double price_per_hour);

// The cheapest number of ranks that fits and meets the deadline.
struct CheapestShape {
  int ranks = 0;
  Estimate estimate;
  RunCost cost;
};
struct Budget {
  double tokens = 0, price_per_hour = 0, deadline_hours = 0;  // of the run; deadline 0: none
};
// Tries whole nodes: without a deadline up to the request's number, with one as many as it needs,
// up to most_searched_ranks. Returns nothing if no number meets the deadline.
inline constexpr int most_searched_ranks = 4096;
std::optional<CheapestShape> cheapest_shape(const Request& request, const Budget& budget);

}  // namespace zero::planner
