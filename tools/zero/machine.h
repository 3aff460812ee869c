// Reads the facts about this machine that the launch depends on.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher.h"
#include "zero/base/cpus.h"

namespace zero::tool {

// cpus: those that count.
MachineFacts read_machine(const std::vector<int>& cpus = allowed_cpus());

// Returns the names of this machine in a hostfile, in lower case; host_lookup.h resolves its
// addresses and aliases.
std::vector<std::string> local_host_names();

}  // namespace zero::tool
