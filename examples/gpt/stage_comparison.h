// --compare-stages: the same steps from the same start at each stage, one engine after the other
// on the same ranks, and what each of them costs.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/options.h"
#include "examples/gpt/task.h"
#include "tools/report/comparison.h"
#include "tools/report/stage_variants.h"
#include "zero/zero.h"

namespace gpt {

// Of compare_stages(): the bits differ, or a signal ended it before all variants had run.
inline constexpr int not_equal = 1;

// The task of each variant, before the first one runs: what is wrong with one is said at once.
std::vector<Task> resolve_variants(const Options& options);

// Collective. Trains under the options at each of their variants; prints the table and writes the
// report. Returns the exit code. A variant that fails is named in the error.
int compare_stages(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
