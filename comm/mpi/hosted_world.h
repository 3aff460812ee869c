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
// The base of that World.
std::unique_ptr<Bootstrap> adopt_mpi(MPI_Comm ranks, const WorldOptions& options);

}  // namespace zero::comm
