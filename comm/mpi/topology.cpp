#include "comm/mpi/topology.h"

namespace zero::comm {

Places find_places(MPI_Comm world) {
  int rank = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm node = MPI_COMM_NULL;
  if (const auto pretended = pretended_node(rank))
    check_mpi(MPI_Comm_split(world, *pretended, rank, &node), "MPI_Comm_split");
  else
    check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
  const UniqueComm owned(node);
  int lowest = rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  return places_of(rank, gather_from_all(lowest, world));
}

}  // namespace zero::comm
