// Resuming: rank 0 chooses a checkpoint, and every rank finds what it owns by name and element,
// whatever the world size and stage that saved. Collective; the program's thread.
#pragma once

#include <optional>
#include <string>

#include "zero/checkpoint/context.h"
#include "zero/zero.h"

namespace zero::detail {

// Throws what went wrong, on all ranks.
std::optional<Resumed> load_checkpoint(CheckpointContext& context, const std::string& directory,
                                       Resume mode, const std::string& tag);

}  // namespace zero::detail
