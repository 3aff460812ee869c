#include "comm/places.h"

#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>

#include "comm/hierarchical/node_map.h"
#include "zero/base/error.h"

namespace zero::comm {

Places places_of(int rank, std::span<const int> node_names) {
  Places places;
  Topology& topology = places.topology;
  topology.rank = rank;
  topology.size = static_cast<int>(node_names.size());
  places.everyone.rank = rank;
  places.everyone.world_ranks.resize(node_names.size());
  std::iota(places.everyone.world_ranks.begin(), places.everyone.world_ranks.end(), 0);
  const NodeMap map(places.everyone, node_names);
  topology.node_of = map.node_of();
  topology.node = map.node(rank);
  topology.node_count = map.nodes();
  places.local_ranks = map.members(topology.node);
  topology.local_rank = map.local(rank);
  topology.local_size = static_cast<int>(places.local_ranks.size());
  return places;
}

std::optional<int> pretended_node(int rank) {
  constexpr const char* name = "ZERO_TEST_NODES";
  const char* variable = std::getenv(name);
  if (variable == nullptr || *variable == '\0') return std::nullopt;
  std::istringstream list(variable);
  std::string number;
  for (int r = 0; r <= rank; ++r)
    if (!std::getline(list, number, ','))
      throw TopologyError(std::string(name) + "=" + variable + " names no node for rank " +
                          std::to_string(rank));
  return std::atoi(number.c_str());
}

}  // namespace zero::comm
