// Measurements of a run, converted for the report: per rank, per step, without the warm-up steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/report/comparison.h"
#include "zero/report.h"

namespace zero::report {

struct MeasuredStep {
  double loss = 0, gradient_norm = 0, tokens_per_second = 0;
  bool skipped = false;
  double compression_error = 0;
};

struct MeasuredRun {
  std::string name;
  std::vector<MeasuredStep> records;  // of all steps
  std::int64_t warm_up = 0;           // steps that the times exclude
  EngineReport after_warm_up, after_all;
  std::uint64_t digest = 0;
  bool encoded = false;         // Variant::encoded
  std::int64_t data_ranks = 0;  // Variant::data_ranks
};

Variant figures_of(const MeasuredRun& run);
// Requires at least one value.
double median_of(std::vector<double> values);

}  // namespace zero::report
