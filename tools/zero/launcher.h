// Derivation of the mpirun line that starts N ranks, from facts about the machine. Pure functions:
// nothing here reads the system, so every case is testable on any machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/hosts.h"

namespace zero::tool {

// Resources and permissions of this machine and this user's account.
struct MachineFacts {
  int cores = 1;          // physical cores this process may run on
  int granted_cores = 1;  // of these, the cores within the cgroup's CPU quota
  bool all_cores = true;  // false inside a CPU set (taskset, a container's cpuset)
  bool root = false;
  bool cross_memory = true;            // may a process read another's memory (process_vm_readv)?
  bool remote_shell = true;            // ssh or rsh is installed
  bool transport_chosen = false;       // the environment names Open MPI's transports (OMPI_MCA_btl)
  std::string scheduler;               // "Slurm", "PBS", "LSF" inside an allocation, or empty
  std::optional<int> scheduler_slots;  // of the allocation, as far as known
};

struct Launcher {
  std::string path = "mpirun";
  LauncherKind kind = LauncherKind::open_mpi;
  int major = 0;
};

struct LaunchRequest {
  int ranks = 1;
  std::string hostfile;     // as passed to the launcher; empty: this machine, or the scheduler's
  std::vector<Host> hosts;  // the hosts of that file
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

// Returns true if ranks may start on other machines.
bool leaves_this_machine(const LaunchRequest& request, const MachineFacts& machine);

// Returns the names of variables that programs need on every host: ZERO_*, OMP_*, and the paths of
// programs, libraries and Python's modules. `environment`: NAME=VALUE each.
std::vector<std::string> needed_everywhere(const std::vector<std::string>& environment);

LaunchPlan plan_launch(const LaunchRequest& request, const MachineFacts& machine,
                       const Launcher& launcher);

// Parses kind and version from the output of `mpirun --version`.
Launcher identify_launcher(const std::string& path, std::string_view version_text);

// Returns the command as one line for a shell.
std::string quote_command(const std::vector<std::string>& command);

}  // namespace zero::tool
