// The model in training, for checkpoints to save and load.
#pragma once

#include <memory>

#include "zero/checkpoint/snapshot.h"
#include "zero/state/train_state.h"

namespace zero::detail {

// The train state must outlive the snapshot.
std::unique_ptr<checkpoint::Snapshot> snapshot_of(TrainState& train);

}  // namespace zero::detail
