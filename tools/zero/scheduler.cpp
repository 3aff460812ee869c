#include "tools/zero/scheduler.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <vector>

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
    scheduler.slots = slots_of_tasks(value_of("SLURM_TASKS_PER_NODE"));
    return scheduler;
  }
  return {};
}

std::optional<int> slots_of_tasks(std::string_view text) {
  int sum = 0;
  const auto number = [&](int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 1 || value > 1 << 20) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  while (true) {
    int tasks = 0, nodes = 1;
    if (!number(tasks)) return std::nullopt;
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      if (!number(nodes) || !text.starts_with(')')) return std::nullopt;
      text.remove_prefix(1);
    }
    if (nodes > (1 << 20) / tasks) return std::nullopt;
    sum += tasks * nodes;
    if (text.empty()) return sum;
    if (!text.starts_with(',') || sum > 1 << 20) return std::nullopt;
    text.remove_prefix(1);
  }
}

}  // namespace zero::tool
