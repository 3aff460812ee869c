// The scheduler's allocation that this process runs in, from the variables that it sets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/hosts.h"

namespace zero::tool {

struct Scheduler {
  std::string name;      // "Slurm", "PBS", "LSF"; empty: none
  std::string hostfile;  // the scheduler's list of hosts, if any
  std::optional<int> slots;
};

// Throws TopologyError if the variables are set but the files or programs referred to are missing,
// because a container inherited them. `starts_by_itself`: Slurm's srun starts the launcher's
// helpers.
Scheduler read_scheduler(bool starts_by_itself);

// Returns the tasks of each node in "2(x3),1": 2, 2, 2, 1. Empty if the text is no such list.
std::vector<int> tasks_of_nodes(std::string_view tasks_per_node);

// Returns the hosts of this process's Slurm allocation with their slots. Throws TopologyError if
// scontrol does not name the hosts.
std::vector<Host> slurm_hosts(const HostLookup& look_up);

}  // namespace zero::tool
