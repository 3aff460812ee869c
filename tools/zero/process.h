// Finding and starting other programs, without a shell.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace zero::tool {

bool is_program(const std::string& file);

// Returns the file that a shell would start for this name; empty if there is none.
std::string find_in_path(const std::string& name);

struct Output {
  int exit_code = 0;  // 127: could not be started
  std::string text;   // standard output and standard error together
  bool timed_out = false;
};

// Runs a helper, and kills it after this time.
constexpr std::chrono::seconds helper_limit{20};
Output capture(const std::vector<std::string>& command,
               std::chrono::milliseconds limit = helper_limit);

// Returns the file of this program.
std::string own_program();

// Returns the path of a program in this program's directory; programs of one installation share it.
std::string installed_program(const std::string& name);

// A program of this installation that `zero run` starts on ranks, and whose result is a line.
struct RanksProgram {
  std::vector<std::string> command;
  int ranks = 1;
  std::string hostfile;  // empty: this machine
  std::string begin;     // of the result, which ends with its line
  std::chrono::seconds limit{1800};
};

// Returns the last such result among the lines that the launcher and the ranks print. Throws
// TopologyError with all of these lines if there is none, or if the program fails.
std::string result_of(const RanksProgram& program);

// From /proc/PID/stat.
struct ProcessStatus {
  std::string name;
  char state = 'X';  // 'X' if there is no such process
  pid_t parent = 0;

  bool is_running() const { return state != 'Z' && state != 'X'; }
};
ProcessStatus status_of(pid_t pid);

// Returns the value of a variable in a process's environment at the start.
std::optional<std::string> variable_of(pid_t pid, const std::string& name);

// A process of a rank on this machine.
struct RankProcess {
  int rank = 0;
  pid_t pid = 0;
  bool stopped = false;
};

// Returns the running processes that a process has started, directly, or also not.
std::vector<pid_t> children_of(pid_t process);
std::vector<pid_t> descendants_of(pid_t launcher);
std::vector<RankProcess> ranks_among(const std::vector<pid_t>& processes);

// Replaces this process by the command; returns only on failure, with errno set.
void become(const std::vector<std::string>& command);

}  // namespace zero::tool
