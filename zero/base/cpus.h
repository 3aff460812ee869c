// The CPUs that this process may use, as the kernel's files and calls say.
#pragma once

#include <string>
#include <vector>

namespace zero {

// The CPUs of the affinity mask, within the cpuset.
std::vector<int> allowed_cpus();

// Returns the whole CPUs within the tightest quota of the control groups of this process, rounded
// up; 0: none has a quota. `mount` is the root of the groups, `membership` the file that lists
// those of the process.
int cpus_of_cgroup(const std::string& mount = "/sys/fs/cgroup",
                   const std::string& membership = "/proc/self/cgroup");

// Returns the whole CPUs within a quota, rounded up; "max 100000" (version 2) and "-1" (version 1)
// mean no limit and give 0.
int cpus_of_quota(const std::string& quota, const std::string& period);

// Returns the first line of a file of the kernel; "" if there is no such file.
std::string first_line(const std::string& file);

}  // namespace zero
