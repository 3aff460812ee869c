// The nodes of all ranks, as they say it.
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
  std::vector<int> local_ranks;  // world ranks of this node, in their order
};

// node_names[rank]: equal numbers are one node.
Places places_of(int rank, std::span<const int> node_names);

// The node that ZERO_TEST_NODES gives a rank: "0,0,1" takes the ranks of one host for those of
// several; nobody but a test needs it.
std::optional<int> pretended_node(int rank);

}  // namespace zero::comm
