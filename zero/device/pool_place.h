// On which cpus the compute threads of a rank with a device belong: beside it, where the state lies
// that they update.
#pragma once

#include <string>

#include "zero/base/cpu/affinity.h"

namespace zero::detail {

class RuntimeCore;

struct PoolPlace {
  CpuList cpus;         // empty: where the process may run
  std::string why_not;  // then
};

// Collective over the ranks.
PoolPlace place_beside_device(RuntimeCore& runtime);

}  // namespace zero::detail
