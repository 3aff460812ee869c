// The lock of a directory of checkpoints: one job at a time saves there.
#pragma once

#include "zero/checkpoint/file_layer.h"

namespace zero::checkpoint {

// Holds the lock while the descriptor is open. Throws SaveError, which names the holder, if another
// job holds it. A lock of an older generation of the same run (generation.h) is taken over, because
// its holder may be on a host that no longer answers.
Descriptor lock_directory(const Directory& root);

}  // namespace zero::checkpoint
