#include "comm/mpi/topology.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>

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
  MPI_Comm_rank(node, &topology.local_rank);
  MPI_Comm_size(node, &topology.local_size);

  int lowest = topology.rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  const std::vector<int> lowest_of = gather_from_all(lowest, world);
  std::map<int, int> number_of;
  topology.node_of.clear();
  for (int r = 0; r < topology.size; ++r) {
    const int first = lowest_of[r];
    const auto [entry, added] = number_of.try_emplace(first, static_cast<int>(number_of.size()));
    topology.node_of.push_back(entry->second);
    if (first == lowest) places.local_ranks.push_back(r);
  }
  topology.node = number_of.at(lowest);
  topology.node_count = static_cast<int>(number_of.size());
  return places;
}

}  // namespace zero::comm
