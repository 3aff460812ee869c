// Reads the facts about this machine that the launch depends on.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher.h"

namespace zero::tool {

MachineFacts read_machine();

// The names that mean this machine in a hostfile, in lower case; its addresses and aliases are for
// host_lookup.h.
std::vector<std::string> local_host_names();

// Whole CPUs that a cgroup's quota pays for, rounded up; "max 100000" (version 2) and "-1" (version
// 1) mean no limit and give 0.
int cpus_of_quota(const std::string& quota, const std::string& period);

}  // namespace zero::tool
