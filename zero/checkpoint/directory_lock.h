// The lock of a directory of checkpoints, so that two jobs do not save there at the same time.
#pragma once

#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

// Returns the lock, which is held while the descriptor is open. Throws SaveError, with the holder's
// name, if another job holds the lock. Takes over the lock of an older generation of the same run
// (generation.h), because that holder may be on a host that no longer answers.
Descriptor lock_directory(const Directory& root);

}  // namespace zero::checkpoint
