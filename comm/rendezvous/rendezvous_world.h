// A World of processes that find each other by a Rendezvous, without MPI.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "comm/world.h"

namespace zero::comm {

// Collective. Throws PeerFailed on every rank if any rank has a problem, and StalledError, with the
// names of the missing ranks, if some do not come within the start limit.
std::unique_ptr<World> create_rendezvous_world(const WorldOptions& options,
                                               const StartProblem& problem);

}  // namespace zero::comm
