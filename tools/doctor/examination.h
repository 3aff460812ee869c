// Examines all hosts of a job.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/readings.h"

namespace zero {
class Runtime;
}

namespace zero::doctor {

// Returns the ranks of the job on this rank's host, with the CPUs to which each is bound.
// Collective.
std::vector<RankOnHost> ranks_on_host(Runtime& runtime);

// Returns the report (report.h) on every rank. Collective: one rank of each host reads that host,
// and several ranks measure the links. directories, program: as for read_host(); equal on all
// ranks.
std::string examine(Runtime& runtime, const std::vector<std::string>& directories,
                    const std::string& program);

}  // namespace zero::doctor
