// Runs a command as if this process had become it, but for its standard error, which passes through
// a filter: standard input and output, the terminal and its job control, signals and the exit code
// are the command's.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher_lines.h"

namespace zero::tool {

// Ends this process as the command ends: with its exit code, or by the signal that ended it. A
// launcher that goes on after a rank has said why the job ends, and after all ranks of this machine
// have left, is ended; the exit code is the cause's then. Where not all of so many ranks come up,
// those that are missing are named. Returns only where it cannot be started, with errno set.
void supervise(const std::vector<std::string>& command, int ranks, LauncherLines& lines);

}  // namespace zero::tool
