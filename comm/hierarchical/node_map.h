// The ranks of a group by node, and the sums that each node can take before anything is sent, such
// that the bits depend only on the reduce groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/group.h"
#include "comm/reduce_groups.h"

namespace zero::comm {

// Indexed by world rank. Ranks with the same number in memory_of communicate through shared memory:
// all ranks of a node, or each only with itself. Counters of moved bytes go by node_of.
struct RankPlaces {
  std::vector<int> node_of, memory_of;
};

// Ranks are those of the group; nodes are numbered by their lowest rank.
class NodeMap {
 public:
  // node_of[world rank].
  NodeMap(const Group& group, std::span<const int> node_of);

  int size() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& node_of() const { return node_of_; }
  int node(int rank) const { return node_of_[rank]; }
  // Among the ranks of the same node, in rank order.
  int local(int rank) const { return local_[rank]; }
  const std::vector<int>& members(int node) const { return members_[node]; }
  // The rank of `node` that sends sums to `rank`, on another node, and receives the slice of
  // `rank`.
  int partner(int rank, int node) const;
  // The ranks of other nodes whose partner on this node is `rank`, in rank order.
  std::vector<int> clients(int rank) const;

 private:
  std::vector<int> node_of_, local_;
  std::vector<std::vector<int>> members_;
};

// A node sums the largest reduce groups that are completely on the node, and sends the values of
// the remaining ranks. The receiver restores the rank order.
struct SumPlan {
  using Item = std::vector<int>;  // the ranks in the sum
  struct Source {
    int node = 0, item = 0;
  };

  SumPlan() = default;
  SumPlan(const NodeMap& map, const ReduceGroups& groups);
  int items_of(int node) const { return static_cast<int>(items[node].size()); }

  ReduceGroups groups;
  std::vector<std::vector<Item>> items;  // by node
  std::vector<Source> sources;           // in the order of the sum
  std::vector<std::uint8_t> ending;      // by source: at how many levels a group ends there

 private:
  void add(const NodeMap& map, int first, int last, int level);
};

}  // namespace zero::comm
