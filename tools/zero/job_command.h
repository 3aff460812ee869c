// The launcher's command for a start of a job. Hosts chosen by `zero run` are in an in-memory file,
// which leaves nothing on the disk.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher.h"

namespace zero::tool {

class JobCommand {
 public:
  // `hosts`: lines of a hostfile that replaces request.hostfile; empty: request.hostfile is used,
  // if any. Under Open MPI the ranks write marks (zero/base/run_marks.h).
  JobCommand(LaunchRequest request, const MachineFacts& machine, const Launcher& launcher,
             std::vector<std::string> hosts);
  ~JobCommand();
  JobCommand(const JobCommand&) = delete;

  // The reasons for options, one line each.
  const std::vector<std::string>& notes() const { return plan_.notes; }
  // The command in the syntax of a shell, over several lines.
  std::string text() const;
  // The command to execute: a shell on each rank reports its process, and then becomes the program;
  // text() shows only the program. The in-memory hostfile exists as long as this object or the
  // started process.
  std::vector<std::string> words();

 private:
  LaunchPlan plan_;
  const std::vector<std::string> hosts_;
  const bool marked_, elsewhere_;
  const std::size_t program_words_;  // at the end of the command
  int file_ = -1;
};

}  // namespace zero::tool
