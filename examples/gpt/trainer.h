// Trains as the options say, on the ranks of the runtime.
#pragma once

#include "examples/gpt/options.h"
#include "zero/zero.h"

namespace gpt {

// Of train(): a signal asked for a stop, and a checkpoint holds all that was done.
inline constexpr int saved_and_stopped = 20;
// The same, without a checkpoint of the last step: there is no --checkpoint, it would not have
// fitted, or it failed.
inline constexpr int stopped_without_save = 21;

// Returns the exit code. A run that was stopped writes no --save-model.
int train(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
