// Runs a command as if this process had become it, except that its standard error passes through a
// filter: standard input and output, the terminal and its job control, signals and the exit code
// are the command's.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher_lines.h"

namespace zero::tool {

// Ends this process as the command ends: with its exit code, or by the signal that ended it. If a
// launcher does not end after a rank has reported why the job ends and all ranks of this machine
// have left, it is terminated, and the exit code is the cause's. If fewer than `ranks` ranks start,
// the missing ones are named. Returns only if the command cannot be started, with errno set.
void supervise(const std::vector<std::string>& command, int ranks, LauncherLines& lines);

}  // namespace zero::tool
