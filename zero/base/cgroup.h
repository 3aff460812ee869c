// Memory that the control groups of this process still allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero {

// A control group with a limit, of this process or above.
struct CgroupRoom {
  int processes = 0;  // in this group and in the groups below
  std::int64_t available = 0;
};

// `mount` is the root of the groups, `membership` the file that lists those of the process.
std::vector<CgroupRoom> cgroup_rooms(const std::string& mount = "/sys/fs/cgroup",
                                     const std::string& membership = "/proc/self/cgroup");

// Returns the minimum over the group of the process and all groups above, of version 2 and of
// version 1; the largest number if none has a limit. A group's usage counts without the page cache
// and the slabs that the kernel reclaims when memory runs short, as MemAvailable does for the host.
std::int64_t cgroup_available(const std::string& mount = "/sys/fs/cgroup",
                              const std::string& membership = "/proc/self/cgroup");

}  // namespace zero
