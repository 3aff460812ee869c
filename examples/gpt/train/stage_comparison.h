// --compare-stages: runs the same steps from the same start at each stage, engine after engine on
// the same ranks, and compares the costs.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/train/options.h"
#include "examples/gpt/train/task.h"
#include "tools/report/comparison.h"
#include "tools/report/stage_variants.h"
#include "zero/zero.h"

namespace gpt {

// Exit code of compare_stages() if the bits differ, or if a signal ended the comparison before all
// variants had run.
inline constexpr int not_equal = 1;

// Resolves the task of each variant before the first run, so that an error in any is reported at
// once.
std::vector<Task> resolve_variants(const Options& options);

// Collective. Trains with the options of each variant; prints the table and writes the report.
// Returns the exit code. If a variant fails, the error names it.
int compare_stages(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
