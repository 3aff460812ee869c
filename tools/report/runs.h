// Bookkeeping of a comparison while its runs are in progress, so that a report written in between
// contains only finished runs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/comparison.h"
#include "tools/report/run_figures.h"

namespace zero::report {

// Settings shared by all runs of a comparison.
struct CommonSettings {
  std::string model;
  std::int64_t parameters = 0, ranks = 0, steps = 0;
  std::int64_t warm_up = 0;  // steps that the times exclude
  bool sync_each = false;    // gradients are reduced after every micro step
};

// Sets the title and the numbers of ranks and parameters, and all runs as absent.
void begin(Comparison& comparison, const CommonSettings& settings,
           const std::vector<std::string>& names);
// Returns facts on the gradients' synchronization and on the steps, for Comparison::facts.
std::vector<std::pair<std::string, std::string>> facts_of(const CommonSettings& settings);
// Adds a finished run.
void add(Comparison& comparison, const MeasuredRun& run);
// Records that a run failed; only the first line of the reason is kept.
void note_failure(Comparison& comparison, const std::string& name, const std::string& reason);

}  // namespace zero::report
