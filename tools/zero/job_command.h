// The launcher's command of one start of a job, with its hosts in an in-memory file if `zero run`
// gives it a list of its own.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher.h"

namespace zero::tool {

class JobCommand {
 public:
  // `hosts`: lines of the hostfile, instead of request.hostfile; empty: that one, or none. Under
  // Open MPI ranks get `marks` as ZERO_RUN_MARKS (zero/base/run_marks.h).
  JobCommand(LaunchRequest request, const MachineFacts& machine, const Launcher& launcher,
             std::vector<std::string> hosts, const std::string& marks);
  ~JobCommand();
  JobCommand(const JobCommand&) = delete;

  // One line each: why an option is there.
  const std::vector<std::string>& notes() const { return plan_.notes; }
  // Lines for a shell.
  std::string text() const;
  // The command to execute; keeps the hosts in memory while this object, or the started process,
  // lives.
  std::vector<std::string> words();

 private:
  LaunchPlan plan_;
  const std::vector<std::string> hosts_;
  const bool marked_, elsewhere_;
  int file_ = -1;
};

}  // namespace zero::tool
