// Judges whether the memory that the ranks of a host are about to take fits there: each rank alone
// would see memory that all ranks are about to use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/runtime/runtime_core.h"

namespace zero::detail {

// Free memory that this rank shares with neighbors: a host's, or that of a cgroup.
struct MemoryRoom {
  std::string name;  // "host a"
  int ranks = 1;     // that share the room
  std::int64_t available = 0;
};

// Reads the rooms of this rank now: call before a collective call after which ranks take memory.
std::vector<MemoryRoom> memory_rooms(const RuntimeCore& runtime);

// Throws MemoryError if `bytes` for each rank of a room do not fit there, with figures. `what` the
// memory is for, and the `advice`, go into the message. Local.
void require_memory(const std::vector<MemoryRoom>& rooms, std::int64_t bytes,
                    const std::string& what, const std::string& advice);

}  // namespace zero::detail
