// From facts about a machine to the mpirun line that starts N ranks on it. Pure functions: nothing
// here reads the system, so every case is testable on any machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/hosts.h"

namespace zero::tool {

// What this machine and this user's account allow.
struct MachineFacts {
  int cores = 1;          // physical cores this process may run on
  int granted_cores = 1;  // of these, what the cgroup's CPU quota pays for
  bool all_cores = true;  // false inside a CPU set (taskset, a container's cpuset)
  bool root = false;
  bool cross_memory = true;            // may a process read another's memory (process_vm_readv)?
  bool remote_shell = true;            // ssh or rsh is installed
  std::string scheduler;               // "Slurm", "PBS", "LSF" inside an allocation, else empty
  std::optional<int> scheduler_slots;  // of the allocation, as far as they are known
};

struct Launcher {
  std::string path = "mpirun";
  LauncherKind kind = LauncherKind::open_mpi;
  int major = 0;
};

struct LaunchRequest {
  int ranks = 1;
  std::string hostfile;     // as the launcher gets it; empty: this machine, or the scheduler's
  std::vector<Host> hosts;  // what it says
  std::vector<std::string> exports;    // -x: NAME, or NAME=VALUE
  std::vector<std::string> forwarded;  // variables that ranks on other hosts get, too: NAME
  std::vector<std::string> launcher_arguments;
  std::string program;
  std::vector<std::string> arguments;
};

struct LaunchPlan {
  std::vector<std::string> command;
  std::vector<std::string> notes;  // one line each: why an option is there
};

// Whether ranks may start on other machines.
bool leaves_this_machine(const LaunchRequest& request, const MachineFacts& machine);

// The names of those variables that programs need on every host alike: ZERO_*, OMP_*, and the paths
// of programs, libraries and Python's modules. `environment`: NAME=VALUE each.
std::vector<std::string> needed_everywhere(const std::vector<std::string>& environment);

LaunchPlan plan_launch(const LaunchRequest& request, const MachineFacts& machine,
                       const Launcher& launcher);

// Kind and version from what `mpirun --version` prints.
Launcher identify_launcher(const std::string& path, std::string_view version_text);

// The command as one line for a shell.
std::string quote_command(const std::vector<std::string>& command);

}  // namespace zero::tool
