// What a hybrid strategy, and what wire formats would save where stage 3 runs on several nodes.
#pragma once

#include <string>

#include "zero/state/train_state.h"

namespace zero::detail {

// One sentence on rank 0; nothing where the config has chosen, where one group per node cannot be
// made, or where nothing would be saved.
std::string hybrid_advice(const TrainState& train);

}  // namespace zero::detail
