// NUMA placement of host memory.
#pragma once

#include <cstdint>
#include <string>

namespace zero {

// Returns the NUMA node of a PCI device such as "0000:3b:00.0"; -1 if unknown.
int numa_node_of_pci(const std::string& bus_id);

// Whether this process may run outside the node's CPUs; false if those are unknown.
bool runs_beyond_numa_node(int node);

// Requests that untouched pages come from the node. Returns the reason of a refusal, or ""; a node
// of -1 is "unknown".
std::string prefer_numa_node(void* data, std::int64_t bytes, int node);

// Until destroyed, pages that this thread touches first come from the node, if the kernel agrees;
// -1 changes nothing.
class PreferNumaNode {
 public:
  explicit PreferNumaNode(int node);
  ~PreferNumaNode();
  PreferNumaNode(const PreferNumaNode&) = delete;
  PreferNumaNode& operator=(const PreferNumaNode&) = delete;

 private:
  static constexpr unsigned long most_nodes = 1024;

  bool changed_ = false;
  int mode_ = 0;
  unsigned long nodes_[most_nodes / 64] = {};
};

}  // namespace zero
