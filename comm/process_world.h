// A World of ranks that are processes, however started.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "comm/world.h"

namespace zero::comm {

// Collective.
std::unique_ptr<World> create_process_world(std::unique_ptr<Bootstrap> bootstrap,
                                            const WorldOptions& options);

}  // namespace zero::comm
