// create_thread_worlds() with the settings that tests vary.
#pragma once

#include <memory>
#include <vector>

#include "comm/world.h"

namespace zero::comm {

struct ThreadSettings {
  std::int64_t half_bytes = 128 * 1024;
  bool read_in_place = true;  // false: all data takes the way of processes without shared arenas
};

std::vector<std::unique_ptr<World>> create_thread_worlds(int ranks, const WorldOptions& options,
                                                         const ThreadSettings& settings);

}  // namespace zero::comm
