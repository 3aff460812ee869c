// The processes of a job on this host, found by the generation (zero/checkpoint/generation.h) in
// their environment, so that those whose launcher is gone are found too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace zero::tool {

// Returns the processes of any generation of this job: ranks, what they have started, and the
// launcher's helpers. A process in another network namespace belongs to another host.
std::vector<pid_t> processes_of_job(const std::string& job);

// Returns the number of those that are ranks.
int ranks_of_job(const std::string& job);

// Kills them all, until none is left or the time is over. Returns true if none is left.
bool end_processes_of_job(const std::string& job, std::chrono::milliseconds limit);

}  // namespace zero::tool
