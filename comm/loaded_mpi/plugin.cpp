// The library that is loaded, and linked with MPI.
#include "comm/loaded_mpi/plugin.h"

extern "C" __attribute__((visibility("default"))) zero::comm::Bootstrap* zerocore_open_mpi(
    int& argc, char**& argv, const zero::comm::Launcher& launcher,
    const zero::comm::WorldOptions& options, const zero::comm::StartProblem& problem) {
  return zero::comm::create_mpi_bootstrap(argc, argv, launcher, options, problem).release();
}
