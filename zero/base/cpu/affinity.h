// On which cpus threads run: those of a NUMA node, and how the ranks whose devices are there share
// them. Masks only ever become narrower. Linux calls and a few files of /sys: a library for it
// (hwloc) would read the whole machine for two lists, and zero/base stands on std alone.
#pragma once

#include <string>
#include <vector>

namespace zero {

// Numbers of cpus, ascending.
using CpuList = std::vector<int>;

// Those that the calling thread may use; empty where the system does not say.
CpuList allowed_cpus();

// The node's cpus, by core: threads of one core share its units. Empty where the machine does not
// say.
std::vector<CpuList> cores_of_numa_node(int node);

// Where a rank runs.
struct RankPlace {
  int host = 0;
  int numa_node = -1;  // of its device
  CpuList allowed;
};

// The rank's share of the cores of its device's node: of those that it may use, cut evenly among
// the ranks that have the same choice. Ranks that a launcher has bound apart keep what they have
// there. Empty where it may use none. A pure function.
CpuList cpus_beside_device(const std::vector<CpuList>& cores_of_node,
                           const std::vector<RankPlace>& ranks, std::size_t own);

// Returns why not, or "".
std::string bind_this_thread(const CpuList& cpus);

// "0-3,8", as the kernel writes it; what is malformed is left out.
CpuList parse_cpus(const std::string& text);
std::string text_of(const CpuList& cpus);

}  // namespace zero
