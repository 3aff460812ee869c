#include "zero/runtime/host_memory.h"

#include <algorithm>

#include "comm/environment.h"
#include "zero/base/arena.h"
#include "zero/base/cgroup.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero::detail {

std::vector<MemoryRoom> memory_rooms(const RuntimeCore& runtime) {
  // Ranks of other groups of a program use the same host.
  const int neighbors = std::max(runtime.world().topology().local_size, comm::launched_neighbors());
  const std::string host = "host " + host_name();
  std::vector<MemoryRoom> rooms;
  // The neighbors' engines have as much untouched memory as this rank's.
  const std::int64_t promised = neighbors * Arena::untouched_bytes();
  if (const std::int64_t available = free_memory(); available >= 0)
    rooms.push_back({host, neighbors, available - promised});
  // Each rank may have a separate group.
  for (const CgroupRoom& group : cgroup_rooms())
    rooms.push_back({"the cgroup of " + host, std::clamp(group.processes, 1, neighbors),
                     group.available - promised});
  return rooms;
}

void require_memory(const std::vector<MemoryRoom>& rooms, std::int64_t bytes,
                    const std::string& what, const std::string& advice) {
  for (const MemoryRoom& room : rooms)
    if (bytes > room.available / room.ranks)
      throw MemoryError(
          "cannot reserve memory for " + what + ": " + count_of(room.ranks, "rank") +
          (room.ranks > 1 ? " need " : " needs ") + byte_text(bytes * room.ranks) +
          (room.ranks > 1 ? " together, and " : ", and ") + room.name + " has " +
          byte_text(room.available) +
          " left (ZERO_AVAILABLE_GIB overrides Linux's figure of free memory, for virtual machines "
          "whose memory grows); " +
          advice);
}

}  // namespace zero::detail
