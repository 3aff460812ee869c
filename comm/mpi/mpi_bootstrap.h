// The start of ranks by MPI, without MPI's types. comm/loaded_mpi has the same functions for
// programs that load MPI at run time.
#pragma once

#include <memory>

#include "comm/bootstrap.h"
#include "comm/environment.h"
#include "comm/world.h"

namespace zero::comm {

// Whether this library or the program has initialized MPI.
bool mpi_initialized();

// Initializes MPI unless the program has. Throws PeerFailed on every rank if any rank has a
// problem.
std::unique_ptr<Bootstrap> create_mpi_bootstrap(int& argc, char**& argv, const Launcher& launcher,
                                                const WorldOptions& options,
                                                const StartProblem& problem);

}  // namespace zero::comm
