// --plan: what each rank would hold, from model and config alone, on ranks and GPUs that need not
// be there.
#pragma once

#include "examples/gpt/options.h"
#include "tools/report/comparison.h"

namespace gpt {

// Of --plan ranks, a variant for each of --compare-stages, or one for the config's stage. Throws
// ConfigError.
zero::report::Comparison memory_plan(const Options& options);

// Prints it, and writes the report where one is asked for.
void show_memory_plan(const Options& options);

}  // namespace gpt
