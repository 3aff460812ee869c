// A trial of `zero tune`: runs a program with one config until enough steps are timed, then ends
// the program.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "tools/zero/launcher.h"
#include "tools/zero/supervise.h"

namespace zero::tool {

struct TrialRequest {
  LaunchRequest launch;  // with the config's file among the arguments
  const MachineFacts& machine;
  const Launcher& launcher;
  int warm_up = 2, steps = 5;  // not timed at first, and timed
  std::chrono::steady_clock::duration limit = {};
};

struct TrialResult {
  std::optional<double> step_seconds = {};  // mean of the timed steps
  std::string problem = {};                 // why there is none
  bool stopped = false;                     // by a signal to this process
  bool by_plan = false;                     // the problem may be the plan's: memory, or time
  bool wrong_options = false;               // the program has refused the command line
};

// The ranks report steps (zero/base/run_marks.h), and are killed afterwards, so that the program
// saves nothing. No output is shown. Throws TopologyError if the launcher cannot be started.
TrialResult run_trial(const TrialRequest& request, const JobSignals& signals);

}  // namespace zero::tool
