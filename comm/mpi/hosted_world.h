// A World over a communicator of a program that uses MPI. MPI must be initialized, and stay so
// until the World is destroyed. With abort_job = false the library never aborts, finalizes or
// exits. The communicator is duplicated. Collective over its ranks.
#pragma once

#include <mpi.h>

#include <memory>

#include "comm/bootstrap.h"
#include "comm/world.h"

namespace zero::comm {

std::unique_ptr<World> create_hosted_world(MPI_Comm data_parallel, const WorldOptions& options);
// The same over all ranks of a grid of two communicators: rank t of `tensor` that is rank d of
// `data` has rank d * T + t, where T is the size of `tensor`. Collective over both. Throws
// UsageError if the communicators form no grid, or have ranks outside of MPI_COMM_WORLD.
std::unique_ptr<World> create_hosted_world(MPI_Comm data, MPI_Comm tensor,
                                           const WorldOptions& options);
// Throws UsageError for an intercommunicator.
void refuse_intercommunicator(MPI_Comm comm);
// The base of that World.
std::unique_ptr<Bootstrap> adopt_mpi(MPI_Comm ranks, const WorldOptions& options);

}  // namespace zero::comm
