// The bookkeeping of a comparison while its runs go on, so that a report that is written in between
// claims no more than has run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/comparison.h"
#include "tools/report/run_figures.h"

namespace zero::report {

// What all runs of a comparison have in common.
struct CommonSettings {
  std::string model;
  std::int64_t parameters = 0, ranks = 0, steps = 0;
  std::int64_t warm_up = 0;  // of the steps, those that the times leave out
  bool sync_each = false;    // gradients are reduced after every micro step
};

// Sets the title and the numbers of ranks and parameters, and all runs as absent.
void begin(Comparison& comparison, const CommonSettings& settings,
           const std::vector<std::string>& names);
// Of the gradients' synchronization and of the steps, as Comparison::facts has them.
std::vector<std::pair<std::string, std::string>> facts_of(const CommonSettings& settings);
// A run has come to its end.
void add(Comparison& comparison, const MeasuredRun& run);
// A run does not come to its end; of the reason, the first line is kept.
void note_failure(Comparison& comparison, const std::string& name, const std::string& reason);

}  // namespace zero::report
