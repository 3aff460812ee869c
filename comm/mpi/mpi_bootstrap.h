// The start of ranks by MPI, without MPI's types. comm/loaded_mpi has the same functions for
// programs that load MPI when they need it.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "comm/environment.h"
#include "comm/world.h"

namespace zero::comm {

// This library has done it, or the program.
bool mpi_initialized();

// Initializes MPI when it is not. Throws PeerFailed on every rank if one has a problem.
std::unique_ptr<Bootstrap> create_mpi_bootstrap(int& argc, char**& argv, const Launcher& launcher,
                                                const WorldOptions& options,
                                                const StartProblem& problem);

}  // namespace zero::comm
