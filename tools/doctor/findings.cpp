#include "tools/doctor/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "tools/zero/temporary_directory.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero::doctor {
namespace {

constexpr double small_shared_memory = 1 * gibibyte, little_disk = 10 * gibibyte;
constexpr std::int64_t small_locked_limit = 65536;  // bytes
constexpr std::int64_t few_files = 4096, few_processes = 1024;
constexpr int oldest_driver_cuda = 12000;
// A link is reported as slow below this share of the fastest link of the same kind.
constexpr double slow_share = 0.5;
constexpr double slow_network = 100e6;  // bytes per second: below gigabit Ethernet
// Below this share of the rate inside a host, stages of a pipeline may be worth a bubble.
constexpr double share_for_stages = 0.25;
constexpr double most_clock_offset = 1;  // seconds

using Findings = std::vector<Finding>;

std::string count_text(std::int64_t count) {
  return count == no_limit ? "no limit" : std::to_string(count);
}

std::string bytes_or_none(std::int64_t bytes) {
  return bytes == no_limit ? "no limit" : byte_text(bytes);
}

void add_software(const Readings& host, Findings& findings) {
  const std::string program = host.program.empty() ? "" : " in " + host.program;
  findings.push_back(
      {"software", "ZeroCore " ZERO_VERSION + program + " on " + host.kernel, {}, {}});
  for (const std::string& path : host.loaded)
    findings.push_back({"software", "loaded: " + path, {}, {}});
  if (host.mpi.empty())
    findings.push_back({"software", "mpirun: not found", Level::slow,
                        "C++ programs and mpirun need MPI: apt install openmpi-bin (Python's "
                        "ranks start with torchrun as well)"});
  else
    findings.push_back({"software", host.mpi, {}, {}});
  for (const std::string& program : host.hung)
    findings.push_back({"software", program + " does not answer, and was ended", Level::failing,
                        "it would hang in a job too: look at its driver or its module, at full or "
                        "unreachable file systems, and at the network"});
  if (!host.remote_shell)
    findings.push_back({"software", "ssh: not found", Level::slow,
                        "mpirun starts ranks on other hosts by ssh: install it for several hosts, "
                        "or start by srun"});
}

void add_cores(const Readings& host, Findings& findings) {
  Finding cores{"cores", std::to_string(host.cores) + " cores, " + host.simd, {}, {}};
  if (host.granted_cores < host.cores) {
    cores.text += ", of which a quota pays for " + std::to_string(host.granted_cores);
    cores.level = Level::slow;
    cores.advice = "start at most " + std::to_string(host.granted_cores) +
                   " ranks with one thread each, or raise the container's CPU limit";
  }
  findings.push_back(cores);
  if (host.simd == "scalar")
    findings.push_back({"cores", "no vector instructions are used", Level::slow,
                        "this processor lacks AVX2, or ZERO_SIMD asks for scalar code: updates "
                        "and sums take several times as long"});
  if (!host.cross_memory)
    findings.push_back({"cores", "a process may not read another one's memory", Level::slow,
                        "Open MPI copies messages twice: allow ptrace in the container "
                        "(--cap-add SYS_PTRACE); ZeroCore's own shared memory does not need it"});
}

// Prints one line for all ranks that have the same CPUs.
void add_ranks(const Readings& host, Findings& findings) {
  std::map<std::vector<int>, std::vector<std::string>> ranks_by_cpus;
  std::set<int> all;
  for (const RankOnHost& rank : host.ranks) {
    ranks_by_cpus[rank.cpus].push_back(std::to_string(rank.rank));
    all.insert(rank.cpus.begin(), rank.cpus.end());
  }
  for (const auto& [cpus, ranks] : ranks_by_cpus) {
    std::vector<std::string> numbers;
    for (const int cpu : cpus) numbers.push_back(std::to_string(cpu));
    Finding binding{"ranks",
                    (ranks.size() == 1 ? "rank " : "ranks ") + list_of(ranks, 8) + " on CPU" +
                        (cpus.size() == 1 ? " " : "s ") + list_of(numbers, 8),
                    {},
                    {}};
    if (ranks.size() > cpus.size()) {
      binding.level = Level::slow;
      binding.advice = all.size() < host.ranks.size()
                           ? "ranks share cores: start at most one rank for each core"
                           : "ranks share cores while others are free: let the launcher bind each "
                             "rank to its own (mpirun --bind-to core, or zero run)";
    }
    findings.push_back(binding);
  }
}

void add_memory(const Readings& host, Findings& findings) {
  findings.push_back(
      {"memory",
       byte_text(host.available_bytes) + " available of " + byte_text(host.memory_bytes),
       {},
       {}});
  Finding locked{
      "memory", "locked memory (ulimit -l): " + bytes_or_none(host.locked_limit), {}, {}};
  const bool tiny = host.locked_limit != no_limit && host.locked_limit <= small_locked_limit;
  if (tiny || (host.locked_limit != no_limit && !host.root && !host.gpus.empty())) {
    locked.level = host.gpus.empty() ? Level::slow : Level::failing;
    locked.advice =
        "offload from a GPU pins host memory, and InfiniBand registers buffers: set memlock to "
        "unlimited in /etc/security/limits.conf, or --ulimit memlock=-1";
  }
  findings.push_back(locked);
  Finding shared{"memory",
                 "/dev/shm: " + (host.shared_bytes > 0 ? byte_text(host.shared_bytes) : "none"),
                 {},
                 {}};
  if (static_cast<double>(host.shared_bytes) < small_shared_memory) {
    shared.level = Level::failing;
    shared.advice =
        "MPI, NCCL and data loaders with workers end with a bus error when it is full: "
        "start the container with --shm-size=8g or --ipc=host";
  }
  findings.push_back(shared);
  if (host.huge_pages == "never")
    findings.push_back({"memory", "transparent huge pages: never", Level::slow,
                        "updates of large models miss the TLB more often: echo madvise > "
                        "/sys/kernel/mm/transparent_hugepage/enabled"});
}

void add_limits(const Readings& host, Findings& findings) {
  Finding files{"limits", "open files (ulimit -n): " + count_text(host.file_limit), {}, {}};
  if (host.file_limit != no_limit && host.file_limit < few_files) {
    files.level = Level::slow;
    files.advice =
        "many ranks on one host, or data loaders with workers, need more: ulimit -n 65536";
  }
  findings.push_back(files);
  if (host.process_limit != no_limit && host.process_limit < few_processes)
    findings.push_back({"limits", "processes (ulimit -u): " + count_text(host.process_limit),
                        Level::failing, "threads of all ranks count: raise it to 4096 or more"});
}

void add_network(const Readings& host, Findings& findings) {
  Finding name{"network", "host " + host.host + " is " + host.host_address, {}, {}};
  if (host.host_address.empty()) {
    name = {"network", "host " + host.host + " has no address", Level::slow,
            "several hosts cannot reach it by its name: add it to /etc/hosts or DNS"};
  } else if (host.host_address.starts_with("127.") || host.host_address == "::1") {
    name.level = Level::slow;
    name.advice =
        "other hosts cannot connect to it: with several hosts the name has to mean an "
        "address of a network, see /etc/hosts";
  }
  findings.push_back(name);
}

void add_gpus(const Readings& host, Findings& findings) {
  if (host.gpus.empty() && host.driver.empty() && !host.driver_cuda) {
    findings.push_back({"GPUs", "none: no NVIDIA driver is loaded", {}, {}});
    return;
  }
  for (const Gpu& gpu : host.gpus)
    findings.push_back(
        {"GPUs", gpu.name + ", " + byte_text(gpu.memory_bytes) + ", " + gpu.uuid, {}, {}});
  Finding driver{"GPUs", "driver " + (host.driver.empty() ? "unknown" : host.driver), {}, {}};
  if (host.driver_cuda) {
    driver.text += " for CUDA " + std::to_string(*host.driver_cuda / 1000) + "." +
                   std::to_string(*host.driver_cuda % 1000 / 10);
    if (*host.driver_cuda < oldest_driver_cuda) {
      driver.level = Level::failing;
      driver.advice = "kernels need a driver for CUDA 12 or newer";
    }
  } else {
    driver.level = Level::failing;
    driver.advice =
        "libcuda.so.1 is not found or does not answer: in a container, start it with "
        "--gpus all";
  }
  findings.push_back(driver);
  if (host.nccl.empty())
    findings.push_back({"GPUs", "NCCL: not found", Level::failing,
                        "several GPU ranks need libnccl.so.2: pip install nvidia-nccl-cu13, or the "
                        "package libnccl2"});
  else
    findings.push_back({"GPUs", "NCCL " + host.nccl, {}, {}});
  findings.push_back(
      {"GPUs",
       "cuBLASLt " + (host.cublas.empty() ? "not found: only train_gpt needs it" : host.cublas),
       {},
       {}});
}

void add_disks(const Readings& host, Findings& findings) {
  for (const Disk& disk : host.disks) {
    if (!disk.error.empty()) {
      findings.push_back({"disks", disk.path + ": " + disk.error, Level::failing,
                          "name a directory that exists and can be written"});
      continue;
    }
    Finding space{"disks",
                  disk.path + ": " + byte_text(disk.free_bytes) + " free on " + disk.file_system,
                  {},
                  {}};
    if (static_cast<double>(disk.free_bytes) < little_disk) {
      space.level = Level::failing;
      space.advice = "a checkpoint has 12 bytes for each parameter (Adam in fp32)";
    }
    findings.push_back(space);
    if (!disk.direct_io)
      findings.push_back({"disks", disk.path + ": no O_DIRECT", Level::slow,
                          "offload to a file goes through the page cache here: choose a local "
                          "disk with ext4 or xfs for nvme_path"});
    if (!disk.locks_files)
      findings.push_back({"disks", disk.path + ": no flock()", Level::failing,
                          "two jobs in one checkpoint directory are not noticed: mount it with "
                          "locks (Lustre: -o flock), or give each job a directory"});
  }
  if (!host.temporary_problem.empty())
    findings.push_back({"disks", host.temporary_problem, Level::failing, tool::temporary_advice});
}

std::string rate_text(double bytes_per_second) {
  return byte_text(bytes_per_second) + "/s";
}

}  // namespace

const char* name_of(Level level) {
  return level == Level::fine ? "fine" : level == Level::slow ? "slow" : "failing";
}

Findings findings_of(const Readings& host) {
  Findings findings;
  add_software(host, findings);
  add_cores(host, findings);
  add_ranks(host, findings);
  add_memory(host, findings);
  add_limits(host, findings);
  add_network(host, findings);
  add_gpus(host, findings);
  add_disks(host, findings);
  return findings;
}

Findings findings_of(const Links& all) {
  Findings findings;
  findings.push_back(
      {"links", std::to_string(all.hosts.size()) + " ranks over " + all.transport, {}, {}});
  const auto host = [&](int rank) { return all.hosts.at(static_cast<std::size_t>(rank)); };
  const auto crosses = [&](const Link& link) { return host(link.first) != host(link.second); };
  double fastest[2] = {0, 0};
  for (const Link& link : all.links)
    fastest[crosses(link)] = std::max(fastest[crosses(link)], link.bytes_per_second);
  for (const Link& link : all.links) {
    const std::string names =
        crosses(link) ? host(link.first) + " - " + host(link.second) : "inside " + host(link.first);
    char latency[32];
    std::snprintf(latency, sizeof latency, "%.1f us", link.latency_seconds * 1e6);
    Finding finding{
        "links",
        names + ": " + latency + ", " + rate_text(link.bytes_per_second) + ", " + link.transport,
        {},
        {}};
    if (link.bytes_per_second < slow_share * fastest[crosses(link)]) {
      finding.level = Level::slow;
      finding.advice = "the fastest of its kind has " + rate_text(fastest[crosses(link)]) +
                       ": every step waits for the slowest link; look at its cable, its port and "
                       "other traffic";
    }
    if (finding.level == Level::fine && crosses(link) && link.bytes_per_second < slow_network) {
      finding.level = Level::slow;
      finding.advice =
          "this is less than gigabit Ethernet: check that the ranks use the network "
          "that is meant (Open MPI: --mca btl_tcp_if_include NETWORK), or keep "
          "parameters and gradients on the host by zero_core.shard_group_size \"node\"";
    }
    findings.push_back(finding);
    if (std::abs(link.clock_offset_seconds) < most_clock_offset) continue;
    char offset[64];
    std::snprintf(offset, sizeof offset, "%.1f s", link.clock_offset_seconds);
    findings.push_back(
        {"links", names + ": the second clock is off by " + offset, Level::slow,
         "logs, traces and schedulers' limits disagree: run chrony or ntpd on both"});
  }
  const auto& [inside, between] = fastest;
  if (between > 0 && between < share_for_stages * inside) {
    char advice[200];
    std::snprintf(advice, sizeof advice,
                  ": zero plan --between-nodes %.3g --pipeline-stages 1,%zu says what stages of a "
                  "pipeline gain, which send activations alone",
                  between / gibibyte, std::set(all.hosts.begin(), all.hosts.end()).size());
    findings.push_back(
        {"links",
         "between hosts " + rate_text(between) + ", inside " + rate_text(inside) + advice,
         {},
         {}});
  }
  return findings;
}

}  // namespace zero::doctor
