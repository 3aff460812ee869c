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
// Returns the fastest exact row that fits. Of the rows within 2 % of the best time the first is
// chosen, because lists begin with the simplest strategy.
Recommendation recommend(const std::vector<Estimate>& estimates);

// A change that would make the request fit.
struct Change {
  std::string what;  // "zero_optimization.stage 3", "--recompute"
  Estimate estimate;
};
// Returns at most `most` changes that would make the request fit, the cheapest first, by predicted
// step time per token. Tries two and three changes at once only if too few single changes suffice.
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
// Tries whole nodes: without a deadline up to the request's number, with a deadline as many as
// needed, up to most_searched_ranks. Returns nothing if no number meets the deadline.
inline constexpr int most_searched_ranks = 4096;
std::optional<CheapestShape> cheapest_shape(const Request& request, const Budget& budget);

}  // namespace zero::planner
