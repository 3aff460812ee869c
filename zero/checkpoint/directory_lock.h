// The lock of a directory of checkpoints, so that two jobs do not save there at the same time.
#pragma once

#include "zero/checkpoint/posix_files.h"

namespace zero::checkpoint {

// Returns the lock, which is held while the descriptor is open. Throws SaveError, with the holder's
// name, if another job holds it. If an older generation of the same run (generation.h) holds it,
// takes it over, because the holder may be on a host that no longer answers.
Descriptor lock_directory(const Directory& root);

}  // namespace zero::checkpoint
