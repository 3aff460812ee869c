// Finds the MPI launcher of this machine, and checks the program that it will start.
#pragma once

#include <string>

#include "tools/zero/launcher.h"

namespace zero::tool {

// Throws TopologyError inside a rank, because each rank would start a job of its own.
void refuse_nesting();

// Throws ConfigError if the program is not an executable file.
void check_program(const std::string& program);

// Returns the launcher of that name, or mpirun or mpiexec if it is empty. Throws TopologyError.
Launcher find_launcher(const std::string& wanted);

}  // namespace zero::tool
