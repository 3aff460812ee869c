// Shared parts of the `zero config` commands: the file with its options, and the output of results.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config_schemas/load.h"
#include "tools/zero/config_plan.h"

namespace zero::tool {

struct ConfigOptions {
  std::string file;
  std::vector<std::string> settings;
  TrainerValues values;
  int ranks = 0;       // 0: not given
  int per_node = 0;    // 0: not given
  std::string device;  // cpu or cuda; empty: not given
  std::string model;   // for parse_model_size(); empty: not given
  bool json = false;

  config_schemas::Loaded load() const;
  PlannedRun planned_run() const;
};

// Options of check and explain, in groups of the help; those of the run may follow in its group.
constexpr const char* run_group = "The run";
void add_file_options(CLI::App& command, ConfigOptions& options);

// Lines of two columns, the first as wide as its longest cell.
using Pairs = std::vector<std::pair<std::string, std::string>>;
void print_pairs(const char* title, const Pairs& rows);

void print_imported(const config_schemas::Loaded& loaded);
void print_notices(const config_schemas::Loaded& loaded);
void print_batch(const Config& config, int ranks);

// Subcommands in separate files.
void add_config_explain(CLI::App& config);
void add_config_new(CLI::App& config);

}  // namespace zero::tool
