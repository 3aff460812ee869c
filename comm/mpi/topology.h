// Where the ranks are, asked of MPI.
#pragma once

#include "comm/group.h"
#include "comm/mpi/native.h"
#include "comm/world.h"

namespace zero::comm {

struct Places {
  Topology topology;
  Group everyone;
  UniqueComm node;               // the ranks of this node, in rank order
  std::vector<int> local_ranks;  // their world ranks
};

// Collective.
Places find_places(MPI_Comm world);

}  // namespace zero::comm
