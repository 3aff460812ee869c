// Names shared by a program that loads MPI on demand and the plugins loaded for that. All are parts
// of the same build.
#pragma once

#include "comm/mpi/mpi_bootstrap.h"

namespace zero::comm {

using OpenMpiBootstrap = Bootstrap*(int& argc, char**& argv, const Launcher& launcher,
                                    const WorldOptions& options, const StartProblem& problem);
inline constexpr const char* plugin_function = "zerocore_open_mpi";

}  // namespace zero::comm
