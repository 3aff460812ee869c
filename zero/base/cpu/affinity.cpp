#include "zero/base/cpu/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace zero {

namespace {

CpuList read_cpus(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return parse_cpus(text);
}

CpuList common(const CpuList& a, const CpuList& b) {
  CpuList both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace

CpuList parse_cpus(const std::string& text) {
  CpuList cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream numbers(range);
    int first = 0, last = 0;
    char dash = 0;
    if (!(numbers >> first)) continue;
    if (!(numbers >> dash >> last)) last = first;
    for (int cpu = first; cpu <= std::min(last, CPU_SETSIZE - 1); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::string text_of(const CpuList& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

CpuList allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CpuList cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) cpus.push_back(cpu);
  return cpus;
}

std::vector<CpuList> cores_of_numa_node(int node) {
  std::vector<CpuList> cores;
  const std::string system = "/sys/devices/system/";
  const CpuList all = read_cpus(system + "node/node" + std::to_string(node) + "/cpulist");
  for (const int cpu : all) {
    CpuList core =
        read_cpus(system + "cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    core = common(core, all);
    if (core.empty()) core = {cpu};
    if (core.front() == cpu) cores.push_back(core);
  }
  return cores;
}

CpuList cpus_beside_device(const std::vector<CpuList>& cores_of_node,
                           const std::vector<RankPlace>& ranks, std::size_t own) {
  std::vector<CpuList> cores, threads;
  for (const CpuList& core : cores_of_node) {
    CpuList usable = common(core, ranks[own].allowed);
    for (const int cpu : usable) threads.push_back({cpu});
    if (!usable.empty()) cores.push_back(std::move(usable));
  }
  std::size_t sharers = 0, index = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const bool shares = ranks[r].host == ranks[own].host &&
                        ranks[r].numa_node == ranks[own].numa_node &&
                        ranks[r].allowed == ranks[own].allowed;
    if (shares && r < own) ++index;
    if (shares) ++sharers;
  }
  // More ranks than cores: a thread of one each, several ranks on one where even these are too few.
  const std::vector<CpuList>& parts = cores.size() < sharers ? threads : cores;
  CpuList chosen;
  if (parts.empty()) return chosen;
  const std::size_t begin = index * parts.size() / sharers;
  const std::size_t end = std::max(begin + 1, (index + 1) * parts.size() / sharers);
  for (std::size_t p = begin; p < end; ++p)
    chosen.insert(chosen.end(), parts[p].begin(), parts[p].end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::string bind_this_thread(const CpuList& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return "";
  return "sched_setaffinity to cpus " + text_of(cpus) + ": " + std::strerror(errno);
}

}  // namespace zero
