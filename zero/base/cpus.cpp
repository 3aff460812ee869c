#include "zero/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace zero {
namespace {

// Returns the tightest quota from this process's cgroup up to the root; 0: none.
int tightest_quota(const std::string& mount, std::string group, bool version_2) {
  int tightest = 0;
  while (true) {
    const std::string folder = mount + group + "/";
    std::string quota, period;
    if (version_2) {
      std::istringstream(first_line(folder + "cpu.max")) >> quota >> period;
    } else {
      quota = first_line(folder + "cpu.cfs_quota_us");
      period = first_line(folder + "cpu.cfs_period_us");
    }
    const int cpus = cpus_of_quota(quota, period);
    if (cpus > 0) tightest = tightest == 0 ? cpus : std::min(tightest, cpus);
    if (group.empty()) return tightest;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<int> allowed_cpus() {
  // Machines beyond CPU_SETSIZE need a larger mask.
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<std::size_t>(capacity));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(capacity));
    std::vector<int> cpus;
    if (mask != nullptr && sched_getaffinity(0, bytes, mask) == 0)
      for (int cpu = 0; cpu < capacity; ++cpu)
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, mask)) cpus.push_back(cpu);
    CPU_FREE(mask);
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

int cpus_of_cgroup(const std::string& mount, const std::string& membership) {
  std::ifstream groups(membership);
  int tightest = 0;
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" in version 2, "N:cpu,cpuacct:/path" in version 1.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string root = version_2 ? mount : mount + "/cpu";
    if (const int cpus = tightest_quota(root, line.substr(second + 1), version_2); cpus > 0)
      tightest = tightest == 0 ? cpus : std::min(tightest, cpus);
  }
  return tightest;
}

int cpus_of_quota(const std::string& quota, const std::string& period) {
  const double paid = std::atof(quota.c_str());
  const double whole = std::atof(period.c_str());
  if (!(paid > 0) || !(whole > 0)) return 0;
  const int cpus = static_cast<int>(paid / whole);
  return cpus < paid / whole ? cpus + 1 : cpus;
}

}  // namespace zero
