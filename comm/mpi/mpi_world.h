// A World over MPI, without MPI's types.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "comm/environment.h"
#include "comm/world.h"

namespace zero::comm {

// By this library or by the program.
bool mpi_initialized();

// Throws PeerFailed on every rank where one has a problem.
std::unique_ptr<World> create_mpi_world(int& argc, char**& argv, const Launcher& launcher,
                                        const WorldOptions& options,
                                        const StartProblem& problem = {});

}  // namespace zero::comm
