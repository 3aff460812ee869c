// From facts about a machine to the mpirun line that starts N ranks on it. Pure functions: nothing
// here reads the system, so every case is testable on any machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zero::tool {

// What this machine and this user's account allow.
struct MachineFacts {
  int cores = 1;          // physical cores this process may run on
  int granted_cores = 1;  // of these, what the cgroup's CPU quota pays for
  bool all_cores = true;  // false inside a CPU set (taskset, a container's cpuset)
  bool root = false;
  bool cross_memory = true;  // may a process read another's memory (process_vm_readv)?
  bool remote_shell = true;  // ssh or rsh is installed
  std::string scheduler;     // "Slurm", "PBS", "LSF" inside an allocation, else empty
};

enum class LauncherKind { open_mpi, hydra, other };

struct Launcher {
  std::string path = "mpirun";
  LauncherKind kind = LauncherKind::open_mpi;
  int major = 0;
};

struct Host {
  std::string name;
  std::optional<int> slots;
  bool local = false;  // this machine, by whatever name
};

struct LaunchRequest {
  int ranks = 1;
  std::string hostfile;     // empty: this machine, or the scheduler's
  std::vector<Host> hosts;  // what it says
  std::vector<std::string> launcher_arguments;
  std::string program;
  std::vector<std::string> arguments;
};

struct LaunchPlan {
  std::vector<std::string> command;
  std::vector<std::string> notes;  // one line each: why an option is there
};

LaunchPlan plan_launch(const LaunchRequest& request, const MachineFacts& machine,
                       const Launcher& launcher);

// Kind and version from what `mpirun --version` prints.
Launcher identify_launcher(const std::string& path, std::string_view version_text);

// The hosts of a hostfile; a repeated host counts once more. Throws ConfigError with the line.
std::vector<Host> parse_hostfile(const std::string& text, LauncherKind kind,
                                 const std::vector<std::string>& local_names);

// The command as one line for a shell.
std::string quote_command(const std::vector<std::string>& command);

}  // namespace zero::tool
