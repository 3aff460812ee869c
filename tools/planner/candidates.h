// Plans of a training run that are worth a trial: strategies and micro-batches with the same number
// of samples per step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/planner/estimate.h"

namespace zero::planner {

// Limits of a search, in samples of a micro-batch.
struct MicroBatchLimits {
  std::int64_t least = 1;
  std::optional<std::int64_t> most = {};
  std::optional<std::size_t> count = {};  // of sizes, the largest that are permitted
  bool open = false;  // a micro-batch of "auto" may change, as the program gets the size otherwise
};

struct Candidate {
  std::string row;
  std::int64_t micro_batch = 0, accumulation = 0;
  double predicted_seconds = 0;  // of a step
  std::int64_t bytes_per_rank = 0;
  std::string config;  // the user's config with this plan, as JSON

  std::string name() const { return row + ", micro-batch " + std::to_string(micro_batch); }
};

// The candidates that fit, the fastest first, and why the rest are none.
struct Candidates {
  std::vector<Candidate> fit = {};
  std::vector<std::string> left_out = {};  // a sentence for each
};

// Crosses the rows with the micro-batches that divide the samples of a step: powers of two and the
// config's own. Keeps the config's micro-batch if the file leaves it to the program ("auto", unless
// `open`), or with zero_core.rank_independent, whose sums depend on the micro-batch. Throws
// ConfigError like estimates().
Candidates candidates(const Request& request, const std::vector<PlanRow>& rows,
                      const MicroBatchLimits& limits);

}  // namespace zero::planner
