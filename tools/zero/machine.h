// Reads the facts about this machine that the launch depends on.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher.h"

namespace zero::tool {

// The CPUs that this process may run on.
std::vector<int> allowed_cpus();
// cpus: those that count.
MachineFacts read_machine(const std::vector<int>& cpus = allowed_cpus());

// Returns the names of this machine in a hostfile, in lower case; host_lookup.h resolves its
// addresses and aliases.
std::vector<std::string> local_host_names();

// Returns the whole CPUs within a cgroup's quota, rounded up; "max 100000" (version 2) and "-1"
// (version 1) mean no limit and give 0.
int cpus_of_quota(const std::string& quota, const std::string& period);

}  // namespace zero::tool
