// Names that a program that loads MPI when it needs it has in common with the plugins that it loads
// for that. All are parts of one build.
#pragma once

#include "comm/mpi/mpi_bootstrap.h"

namespace zero::comm {

using OpenMpiBootstrap = Bootstrap*(int& argc, char**& argv, const Launcher& launcher,
                                    const WorldOptions& options, const StartProblem& problem);
inline constexpr const char* plugin_function = "zerocore_open_mpi";

}  // namespace zero::comm
