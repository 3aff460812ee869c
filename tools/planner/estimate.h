// Estimates a row: the memory of a rank from the engine's own ledger, traffic and time from a
// simulation of the engine's instructions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/planner/plan_rows.h"
#include "tools/planner/request.h"
#include "tools/planner/step_simulation.h"
#include "zero/config.h"
#include "zero/report.h"

namespace zero::planner {

struct Estimate {
  std::string row;
  std::string refusal = {};  // why the engine would refuse; if set, all else is empty
  std::string strategy = {};
  int stages = 1;                 // of a pipeline
  PipelineOptions pipeline = {};  // with what "best" stands for
  Text overrides = {};
  bool exact = true;
  MemoryPlan memory = {};           // of the rank that needs the most, by category
  std::int64_t activations = 0;     // bytes of its program, in the computing device's memory
  std::int64_t bytes_per_rank = 0;  // both together, in that memory
  std::int64_t bytes_in_host = 0, bytes_in_file = 0;  // per rank
  // DeepSpeed's estimate for a GPU, without activations; absent for stages 0 and 1.
  std::optional<std::int64_t> deepspeed_bytes = {};
  bool fits = false;
  std::string why_not = {};  // if the row does not fit
  StepTimes step = {};
  double tokens_per_step = 0;    // of a rank; the ranks of a pipeline share those of one
  double tokens_per_second = 0;  // of a rank
  double mfu = 0;                // of the device's peak
};

// Throws ConfigError if the config cannot be read, or cannot be used with these ranks.
Estimate estimate(const Request& request, const PlanRow& row);
std::vector<Estimate> estimates(const Request& request, const std::vector<PlanRow>& rows);

// The share of a step up to which waits count as hidden by computation.
inline constexpr double hidden_share = 0.05;
// Returns the smallest number of tokens in a rank's micro-batch, to 5 %, with which waits are at
// most hidden_share of a step; nothing if there is none below 4 million.
std::optional<std::int64_t> hiding_tokens(const Request& request, const PlanRow& row);

// Returns the sum of the planned bytes of a tier.
std::int64_t total(const std::vector<MemoryUse>& uses);
// Returns the bytes of parameters, gradients, master weights and optimizer states, which the papers
// call model states.
std::int64_t model_states(const Estimate& estimate);

}  // namespace zero::planner
