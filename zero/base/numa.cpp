#include "zero/base/numa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "zero/base/text.h"

namespace zero {

namespace {

constexpr int mpol_preferred = 1;  // linux/mempolicy.h, which is not always installed

}  // namespace

int numa_node_of_pci(const std::string& bus_id) {
  std::string name = lower_case(bus_id);
  // CUDA prints the domain with eight digits, the kernel with four.
  if (name.size() > 12 && name.starts_with("0000")) name.erase(0, 4);
  std::ifstream file("/sys/bus/pci/devices/" + name + "/numa_node");
  int node = -1;
  file >> node;
  return file ? node : -1;
}

bool runs_beyond_numa_node(int node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (!file || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  // "0-3,8"
  for (std::string range; std::getline(file, range, ',');) {
    int first = 0, last = 0;
    const int numbers = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (numbers < 1) return false;
    for (int cpu = first; cpu <= std::max(first, last) && cpu < CPU_SETSIZE; ++cpu)
      CPU_CLR(static_cast<std::size_t>(cpu), &allowed);
  }
  return CPU_COUNT(&allowed) > 0;
}

std::string prefer_numa_node(void* data, std::int64_t bytes, int node) {
  if (node < 0) return "the machine does not say which NUMA node it belongs to";
  if (node >= 64) return "NUMA node " + std::to_string(node) + " is beyond the mask of 64";
  const unsigned long mask = 1ul << node;
  // The kernel reads one bit fewer than the given length.
  if (syscall(SYS_mbind, data, static_cast<unsigned long>(bytes), mpol_preferred, &mask, 65ul, 0) ==
      0)
    return "";
  return "mbind to NUMA node " + std::to_string(node) + ": " + std::strerror(errno);
}

PreferNumaNode::PreferNumaNode(int node) {
  if (node < 0 || node >= 64) return;
  if (syscall(SYS_get_mempolicy, &mode_, nodes_, most_nodes, nullptr, 0ul) != 0) return;
  const unsigned long mask = 1ul << node;
  changed_ = syscall(SYS_set_mempolicy, mpol_preferred, &mask, 65ul) == 0;
}

PreferNumaNode::~PreferNumaNode() {
  if (changed_) syscall(SYS_set_mempolicy, mode_, nodes_, most_nodes);
}

}  // namespace zero
