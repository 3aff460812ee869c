// zero run --restarts: restarts a job after a failure on the remaining slots, as a new generation
// (zero/checkpoint/generation.h). The restarting process itself does not use MPI, because a failed
// MPI job cannot be repaired: each start runs a new mpirun.
#pragma once

#include "tools/zero/launcher.h"
#include "tools/zero/recovery.h"
#include "tools/zero/supervise.h"

namespace zero::tool {

struct RestartRequest {
  LaunchRequest launch;  // `hosts`: all hosts that may be used; empty: this machine
  MachineFacts machine;
  Launcher launcher;
  RecoveryOptions recovery;
  JobLimits limits;
  bool grows = true;     // onto hosts that answer again
  bool verbose = false;  // show all of the launcher's output
};

// Exits with the exit code or signal of the last start of the job. Throws TopologyError if the
// launcher cannot be started.
[[noreturn]] void run_with_restarts(const RestartRequest& request, const JobSignals& signals);

}  // namespace zero::tool
