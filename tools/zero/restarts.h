// zero run --restarts: starts the job again after a failure, with the slots that are left, as a new
// generation (zero/checkpoint/generation.h). It stays outside of MPI: each start has an mpirun of
// its own.
#pragma once

#include "tools/zero/launcher.h"
#include "tools/zero/recovery.h"

namespace zero::tool {

struct RestartRequest {
  LaunchRequest launch;  // `hosts` with all hosts that may be used; empty: this machine
  MachineFacts machine;
  Launcher launcher;
  RecoveryOptions recovery;
  bool verbose = false;  // shows all that the launcher says
};

// Ends this process as the last start of the job ends. Throws TopologyError if the launcher cannot
// be started.
[[noreturn]] void run_with_restarts(const RestartRequest& request);

}  // namespace zero::tool
