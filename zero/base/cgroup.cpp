#include "zero/base/cgroup.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

namespace zero {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// The files of a cgroup version. Version 1 includes the child groups only in the totals.
struct Version {
  const char* folder;      // below the mount
  const char* controller;  // as named in /proc/self/cgroup
  const char *limit, *usage;
  std::vector<std::string_view> reclaimable;  // fields of memory.stat
};

const Version versions[] = {
    {"", "", "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}},
    {"memory",
     "memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}}};

std::int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  file >> value;  // "max" leaves -1
  return file ? value : -1;
}

std::int64_t reclaimable_bytes(const std::string& path, const Version& version) {
  std::ifstream file(path);
  std::int64_t sum = 0, value = 0;
  for (std::string name; file >> name >> value;)
    if (std::ranges::count(version.reclaimable, name) > 0) sum += value;
  return sum;
}

std::int64_t available_in(const std::string& group, const Version& version) {
  const std::int64_t limit = read_number(group + "/" + version.limit);
  const std::int64_t usage = read_number(group + "/" + version.usage);
  if (limit < 0 || usage < 0) return no_limit;
  const std::int64_t used =
      std::max<std::int64_t>(0, usage - reclaimable_bytes(group + "/memory.stat", version));
  return std::max<std::int64_t>(0, limit - used);
}

int processes_in(const std::filesystem::path& group) {
  int count = 0;
  std::ifstream file(group / "cgroup.procs");
  for (std::string line; std::getline(file, line);) ++count;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(group, ignored))
    if (entry.is_directory(ignored)) count += processes_in(entry.path());
  return count;
}

// Returns "/" if the file names none. A line is ID:CONTROLLER,CONTROLLER:PATH.
std::string group_of_process(const std::string& membership, const Version& version) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + std::string(version.controller) + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return "/";
}

// Calls `room(folder, available bytes)` for each group that has a limit.
template <typename Room>
void for_each_room(const std::string& mount, const std::string& membership, const Room& room) {
  for (const Version& version : versions) {
    const std::string root = mount + "/" + version.folder;
    // In a container the path may be the host's path, whose groups are not visible: the container's
    // own group is the mount itself.
    for (std::filesystem::path group = group_of_process(membership, version);;
         group = group.parent_path()) {
      const std::string folder = root + group.string();
      const std::int64_t available = available_in(folder, version);
      if (available != no_limit) room(folder, available);
      if (!group.has_relative_path()) break;
    }
  }
}

}  // namespace

std::vector<CgroupRoom> cgroup_rooms(const std::string& mount, const std::string& membership) {
  std::vector<CgroupRoom> rooms;
  for_each_room(mount, membership, [&](const std::string& folder, std::int64_t available) {
    rooms.push_back({processes_in(folder), available});
  });
  return rooms;
}

std::int64_t cgroup_available(const std::string& mount, const std::string& membership) {
  std::int64_t least = no_limit;
  // Without counts of processes, since each arena asks.
  for_each_room(mount, membership, [&](const std::string&, std::int64_t available) {
    least = std::min(least, available);
  });
  return least;
}

}  // namespace zero
