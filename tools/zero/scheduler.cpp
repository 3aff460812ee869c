#include "tools/zero/scheduler.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <sstream>

#include "tools/zero/process.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

struct Kind {
  const char *mark, *name, *hostfile;
};

constexpr std::array<Kind, 3> kinds = {{{"SLURM_JOB_ID", "Slurm", nullptr},
                                        {"PBS_JOBID", "PBS", "PBS_NODEFILE"},
                                        {"LSB_JOBID", "LSF", "LSB_DJOB_HOSTFILE"}}};

std::string value_of(const char* variable) {
  const char* value = variable == nullptr ? nullptr : std::getenv(variable);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse_inherited(const std::string& problem, std::vector<std::string> variables) {
  std::erase_if(variables, [](const std::string& name) { return value_of(name.c_str()).empty(); });
  throw TopologyError(problem +
                      ": the variables were inherited, by a container for example; `unset " +
                      list_of(variables, variables.size(), " ") + "` starts on this machine");
}

void check_slurm() {
  if (!find_in_path("srun").empty()) return;
  refuse_inherited(
      "SLURM_JOB_ID is set, but there is no srun in PATH, by which mpirun starts ranks in "
      "a Slurm job",
      {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_JOB_NODELIST",
       "SLURM_TASKS_PER_NODE"});
}

void check_hostfile(const Kind& kind, const std::string& file) {
  std::error_code unknown;
  if (file.empty() || std::filesystem::exists(file, unknown)) return;
  refuse_inherited(std::string(kind.mark) + " is set, but the hostfile " + file + " of " +
                       kind.hostfile + " does not exist here",
                   {kind.mark, kind.hostfile});
}

}  // namespace

Scheduler read_scheduler(bool starts_by_itself) {
  for (const Kind& kind : kinds) {
    if (value_of(kind.mark).empty()) continue;
    Scheduler scheduler{kind.name, value_of(kind.hostfile), std::nullopt};
    check_hostfile(kind, scheduler.hostfile);
    if (scheduler.name != "Slurm") return scheduler;
    if (starts_by_itself) check_slurm();
    const std::vector<int> tasks = tasks_of_nodes(value_of("SLURM_TASKS_PER_NODE"));
    if (!tasks.empty()) scheduler.slots = std::accumulate(tasks.begin(), tasks.end(), 0);
    return scheduler;
  }
  return {};
}

std::vector<int> tasks_of_nodes(std::string_view text) {
  constexpr int most = 1 << 20;
  const auto number = [&](int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 1 || value > most) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  std::vector<int> tasks_of;
  while (true) {
    int tasks = 0, nodes = 1;
    if (!number(tasks)) return {};
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      if (!number(nodes) || !text.starts_with(')')) return {};
      text.remove_prefix(1);
    }
    if (std::ssize(tasks_of) + nodes > most / tasks) return {};
    tasks_of.insert(tasks_of.end(), static_cast<std::size_t>(nodes), tasks);
    if (text.empty()) return tasks_of;
    if (!text.starts_with(',')) return {};
    text.remove_prefix(1);
  }
}

std::vector<Host> slurm_hosts(const HostLookup& look_up) {
  const std::string nodes = value_of("SLURM_JOB_NODELIST");
  const Output listed = capture({"scontrol", "show", "hostnames", nodes});
  std::vector<Host> hosts;
  std::istringstream lines(listed.text);
  for (std::string name; lines >> name;)
    hosts.push_back({.name = name, .slots = {}, .local = look_up(name).local});
  const std::vector<int> tasks = tasks_of_nodes(value_of("SLURM_TASKS_PER_NODE"));
  if (listed.exit_code != 0 || hosts.empty() || tasks.size() != hosts.size())
    throw TopologyError(
        "the hosts of this Slurm job are unknown: `scontrol show hostnames " + nodes + "` lists " +
        std::to_string(hosts.size()) + ", and SLURM_TASKS_PER_NODE (" +
        value_of("SLURM_TASKS_PER_NODE") + ") has " + std::to_string(tasks.size()) +
        "; expected one number of tasks for each: give --ntasks-per-node to sbatch");
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = tasks[i];
  return hosts;
}

}  // namespace zero::tool
