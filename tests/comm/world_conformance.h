// The conformance suite over the ranks of a World. Buffers are in private memory, in shared arenas,
// and in shared arenas on some ranks only.
#pragma once

#include "comm/world.h"

namespace zero::comm::testing {

// Collective. Rank 0 prints the checks; throws if one fails.
void check_world(World& world);

}  // namespace zero::comm::testing
