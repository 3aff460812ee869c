#include "tools/planner/host_memory.h"

#include "zero/base/arena.h"

namespace zero::planner {

std::int64_t available_host_memory() {
  return available_memory();
}

}  // namespace zero::planner
