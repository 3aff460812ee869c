#include "tools/zero/machine.h"

#include <sched.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "tools/zero/process.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Launchers count cores, not hardware threads.
int cores_among(const std::vector<int>& cpus) {
  std::set<std::pair<std::string, std::string>> cores;
  for (const int cpu : cpus) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string core = first_line(folder + "core_id");
    if (core.empty()) return static_cast<int>(cpus.size());
    cores.emplace(first_line(folder + "physical_package_id"), core);
  }
  return static_cast<int>(cores.size());
}

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

int granted_cpus() {
  std::ifstream groups("/proc/self/cgroup");
  int granted = INT_MAX;
  for (std::string line; std::getline(groups, line);) {
    // "0::/path" in version 2, "N:cpu,cpuacct:/path" in version 1.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string mount = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    if (const int cpus = tightest_quota(mount, line.substr(second + 1), version_2); cpus > 0)
      granted = std::min(granted, cpus);
  }
  return granted;
}

// Tries to read a child process, like launchers' shared-memory transports between ranks, because a
// container's system call filter or ptrace rules may forbid it.
bool can_read_other_memory() {
  static char probe = 'z';
  std::array<int, 2> gate{};
  if (pipe(gate.data()) != 0) return false;
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    close(gate[1]);
    char nothing = 0;
    const bool closed = read(gate[0], &nothing, 1) == 0;
    _exit(closed ? 0 : 1);
  }
  close(gate[0]);
  char copy = 0;
  iovec to{&copy, 1};
  iovec from{&probe, 1};
  const bool can = process_vm_readv(child, &to, 1, &from, 1, 0) == 1 && copy == 'z';
  close(gate[1]);
  waitpid(child, nullptr, 0);
  return can;
}

}  // namespace

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

MachineFacts read_machine(const std::vector<int>& cpus) {
  MachineFacts facts;
  facts.cores = cores_among(cpus);
  facts.granted_cores = std::min(facts.cores, granted_cpus());
  facts.all_cores = static_cast<long>(cpus.size()) >= sysconf(_SC_NPROCESSORS_ONLN);
  facts.root = geteuid() == 0;
  facts.cross_memory = can_read_other_memory();
  facts.remote_shell = !find_in_path("ssh").empty() || !find_in_path("rsh").empty();
  return facts;
}

std::vector<std::string> local_host_names() {
  const std::string name = lower_case(host_name());
  return {"localhost", "127.0.0.1", "::1", name, name.substr(0, name.find('.'))};
}

int cpus_of_quota(const std::string& quota, const std::string& period) {
  const double paid = std::atof(quota.c_str());
  const double whole = std::atof(period.c_str());
  if (!(paid > 0) || !(whole > 0)) return 0;
  const int cpus = static_cast<int>(paid / whole);
  return cpus < paid / whole ? cpus + 1 : cpus;
}

}  // namespace zero::tool
