// Finds the processes of a job on this host by the generation (zero/checkpoint/generation.h) in
// their environment, so that it also finds processes whose launcher has ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace zero::tool {

// Returns the processes of all generations of this job: ranks, their children, and the launcher's
// daemons. Processes in another network namespace count as those of another host.
std::vector<pid_t> processes_of_job(const std::string& job);

// Returns the number of ranks among them.
int ranks_of_job(const std::string& job);

// Kills them until none is left or the time is over. Returns true if none is left.
bool end_processes_of_job(const std::string& job, std::chrono::milliseconds limit);

}  // namespace zero::tool
