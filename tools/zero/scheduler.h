// The scheduler's allocation that this process runs in, from the variables that it sets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zero::tool {

struct Scheduler {
  std::string name;      // "Slurm", "PBS", "LSF"; empty: none
  std::string hostfile;  // the scheduler's list of hosts, if there is one
  std::optional<int> slots;
};

// Throws TopologyError if the variables are set but the files or programs that they refer to are
// missing, because a container inherited them. `starts_by_itself`: Slurm's srun starts the
// launcher's helpers.
Scheduler read_scheduler(bool starts_by_itself);

// Returns the sum of "2(x3),1": 7. Empty if it is no such list.
std::optional<int> slots_of_tasks(std::string_view tasks_per_node);

}  // namespace zero::tool
