// Where host memory lies among the sockets of a machine.
#pragma once

#include <cstdint>
#include <string>

namespace zero {

// Of a PCI device such as "0000:3b:00.0"; -1 where the machine does not say.
int numa_node_of_pci(const std::string& bus_id);

// Whether this process may run beyond the node's cpus; false where the machine does not say which
// those are.
bool runs_beyond_numa_node(int node);

// Asks that pages not yet touched come from the node. Returns why not, or "" when it was granted;
// a node of -1 is "unknown".
std::string prefer_numa_node(void* data, std::int64_t bytes, int node);

// While it lives, pages that this thread is the first to touch come from the node, where the kernel
// grants it; -1 changes nothing.
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
