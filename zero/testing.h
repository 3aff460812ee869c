// For tests of programs that use ZeroCore: ranks without mpirun, and delays that bring races out.
#pragma once

#include "zero/zero.h"

namespace zero::testing {

// Runs the body on N ranks, each a thread of this process. Rethrows the first cause when a rank
// fails.
void run_ranks(int ranks, const std::function<void(Runtime&)>& body, RuntimeOptions = {});

// From now on, every plan instruction and collective of this process is preceded by a random sleep
// of up to this many microseconds; 0 ends it.
void inject_delays(std::uint64_t seed, int max_microseconds);

}  // namespace zero::testing
