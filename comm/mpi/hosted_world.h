// A World over a communicator that the program brings, for programs that own MPI themselves. MPI
// must be up, and stay up until the World is gone. With abort_job = false the library never aborts,
// finalizes or exits. Collective over the communicator, which is duplicated.
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
