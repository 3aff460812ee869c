// Trains according to the options, on the ranks of the runtime.
#pragma once

#include "examples/gpt/train/options.h"
#include "zero/zero.h"

namespace gpt {

// Exit code of train() if a signal stopped the run and a checkpoint holds all of its steps.
inline constexpr int saved_and_stopped = 20;
// The same without a checkpoint of the last step: there is no --checkpoint, the save would not have
// finished in time, or failed.
inline constexpr int stopped_without_save = 21;

// Returns the exit code. A run stopped by a signal writes no --save-model.
int train(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
