// --plan: the memory of each rank, from model and config alone, for ranks and GPUs that need not
// exist.
#pragma once

#include "examples/gpt/train/options.h"
#include "tools/report/comparison.h"

namespace gpt {

// Plans --plan ranks: a variant for each of --compare-stages, or one for the config's stage. Throws
// ConfigError.
zero::report::Comparison memory_plan(const Options& options);

// Prints the plan, and writes the report if the options name a directory for it.
void show_memory_plan(const Options& options);

}  // namespace gpt
