// Advice at the start of a training run.
#pragma once

#include <string>

#include "zero/state/train_state.h"

namespace zero::detail {

// Savings by a hybrid strategy, and by wire formats, if stage 3 runs on several nodes: one sentence
// on rank 0; empty if the config has chosen, if one group per node is impossible, or if nothing
// would be saved.
std::string hybrid_advice(const TrainState& train);

}  // namespace zero::detail
