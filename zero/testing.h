// For tests of programs that use ZeroCore: ranks without mpirun, and delays that expose races.
#pragma once

#include "zero/zero.h"

namespace zero::testing {

// Runs the body on N ranks, each a thread of this process. Rethrows the first cause if a rank
// fails.
void run_ranks(int ranks, const std::function<void(Runtime&)>& body, RuntimeOptions = {});

// From now on, a random sleep of up to this many microseconds precedes every plan instruction and
// collective of this process; 0 ends this.
void inject_delays(std::uint64_t seed, int max_microseconds);

}  // namespace zero::testing
