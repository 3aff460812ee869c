// The nodes of all ranks, from the names that the ranks report.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "comm/world.h"

namespace zero::comm {

struct Places {
  Topology topology;
  Group everyone;
  std::vector<int> local_ranks;  // world ranks of this node, ascending
};

// node_names[rank]: ranks with equal numbers are on the same node.
Places places_of(int rank, std::span<const int> node_names);

// Returns the node that ZERO_TEST_NODES gives a rank: "0,0,1" treats ranks of a host as ranks of
// two nodes. For tests.
std::optional<int> pretended_node(int rank);

}  // namespace zero::comm
