#include "tools/zero/machine.h"

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <utility>

#include "tools/zero/process.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

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

MachineFacts read_machine(const std::vector<int>& cpus) {
  MachineFacts facts;
  facts.cores = cores_among(cpus);
  const int paid = cpus_of_cgroup();
  facts.granted_cores = paid > 0 ? std::min(facts.cores, paid) : facts.cores;
  facts.all_cores = static_cast<long>(cpus.size()) >= sysconf(_SC_NPROCESSORS_ONLN);
  facts.root = geteuid() == 0;
  facts.cross_memory = can_read_other_memory();
  facts.transport_chosen = std::getenv("OMPI_MCA_btl") != nullptr;
  facts.remote_shell = !find_in_path("ssh").empty() || !find_in_path("rsh").empty();
  return facts;
}

std::vector<std::string> local_host_names() {
  const std::string name = lower_case(host_name());
  return {"localhost", "127.0.0.1", "::1", name, name.substr(0, name.find('.'))};
}

}  // namespace zero::tool
