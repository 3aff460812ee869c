// Runs a command as if this process had become it, but for its standard error, which passes through
// a filter: standard input and output, the terminal and its job control, signals and the exit code
// are the command's.
#pragma once

#include <string>
#include <vector>

#include "tools/zero/launcher_lines.h"

namespace zero::tool {

// Ends this process as the command ends: with its exit code, or by the signal that ended it.
// Returns only where it cannot be started, with errno set.
void supervise(const std::vector<std::string>& command, LauncherLines& lines);

}  // namespace zero::tool
