// The options of `zero tune`: from its command line, from the program's arguments, and from the
// `autotuning` block of the program's config, with DeepSpeed's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/planner/candidates.h"

namespace zero::tool {

// As given on the command line; absent values come from the config or have defaults.
struct TuneArguments {
  int ranks = 0;
  std::string model = {}, device = "cpu", rows = {}, write = {}, json = {}, launcher = {};
  std::int64_t sequence = 0;
  std::optional<int> trials = {}, steps = {};
  double minutes = 10;
};

struct TuneOptions {
  int ranks = 1;
  std::string program;
  std::vector<std::string> arguments;
  planner::Request request;
  std::vector<planner::PlanRow> rows;
  planner::MicroBatchLimits micro_batches;
  int trials = 12, warm_up = 2, steps = 5;
  int repeats = 2;  // of the three fastest plans
  double minutes = 10;
  // Options of the program that must agree with the config, from autotuning.arg_mappings.
  std::string micro_option, accumulation_option;
  std::string write, json, launcher;
};

// Throws ConfigError for arguments that contradict a search, such as --checkpoint.
TuneOptions tune_options(const TuneArguments& given, const std::string& program,
                         const std::vector<std::string>& arguments);

}  // namespace zero::tool
