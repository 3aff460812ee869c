// What is trained, as checkpoints save and load it.
#pragma once

#include <memory>

#include "zero/checkpoint/snapshot.h"
#include "zero/state/train_state.h"

namespace zero::detail {

std::unique_ptr<checkpoint::Snapshot> snapshot_of(TrainState& train);

}  // namespace zero::detail
