// Finds the MPI launcher of this machine, and checks the program to start.
#pragma once

#include <string>

#include "tools/zero/launcher.h"

namespace zero::tool {

// Throws TopologyError inside a rank, because each rank would start a separate job.
void refuse_nesting();

// Throws ConfigError if the program is not an executable file.
void check_program(const std::string& program);

// Returns the launcher of that name, or mpirun or mpiexec if empty. Throws TopologyError.
Launcher find_launcher(const std::string& wanted);

}  // namespace zero::tool
