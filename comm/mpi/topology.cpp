#include "comm/mpi/topology.h"

#include <cstdlib>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>

#include "comm/hierarchical/node_map.h"

namespace zero::comm {
namespace {

// "0,0,1" takes the ranks of one host for those of several; nobody but a test needs it.
constexpr const char* pretended_nodes = "ZERO_TEST_NODES";

std::optional<int> pretended_node(int rank) {
  const char* variable = std::getenv(pretended_nodes);
  if (variable == nullptr || *variable == '\0') return std::nullopt;
  std::istringstream list(variable);
  std::string number;
  for (int r = 0; r <= rank; ++r)
    if (!std::getline(list, number, ','))
      throw TopologyError(std::string(pretended_nodes) + "=" + variable +
                          " names no node for rank " + std::to_string(rank));
  return std::atoi(number.c_str());
}

}  // namespace

Places find_places(MPI_Comm world) {
  Places places;
  Topology& topology = places.topology;
  MPI_Comm_rank(world, &topology.rank);
  MPI_Comm_size(world, &topology.size);
  MPI_Comm node = MPI_COMM_NULL;
  if (const auto pretended = pretended_node(topology.rank))
    check_mpi(MPI_Comm_split(world, *pretended, topology.rank, &node), "MPI_Comm_split");
  else
    check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, topology.rank, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
  places.node = UniqueComm(node);

  int lowest = topology.rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  places.everyone.rank = topology.rank;
  places.everyone.world_ranks.resize(topology.size);
  std::iota(places.everyone.world_ranks.begin(), places.everyone.world_ranks.end(), 0);
  const NodeMap map(places.everyone, gather_from_all(lowest, world));
  topology.node_of = map.node_of();
  topology.node = map.node(topology.rank);
  topology.node_count = map.nodes();
  places.local_ranks = map.members(topology.node);
  topology.local_rank = map.local(topology.rank);
  topology.local_size = static_cast<int>(places.local_ranks.size());
  return places;
}

}  // namespace zero::comm
