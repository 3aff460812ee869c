// The nodes of the ranks, from MPI.
#pragma once

#include "comm/mpi/native.h"
#include "comm/places.h"

namespace zero::comm {

// Collective.
Places find_places(MPI_Comm world);

}  // namespace zero::comm
