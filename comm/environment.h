// Reads the environment to find out how this process was started.
#pragma once

#include <chrono>
#include <string>

#include "comm/world.h"

namespace zero::comm {

// The launcher's variable with the number of ranks; an empty name if there is no launcher.
struct Launcher {
  std::string variable;
  int ranks = 0;

  bool found() const { return !variable.empty(); }
};

// Looks for OMPI_COMM_WORLD_SIZE, PMI_SIZE, then Slurm's variables, which count only inside a step
// made by srun: a batch script has SLURM_NTASKS too, but its commands are single processes. An
// mpirun inside an allocation sets its own variable, which comes first.
Launcher find_launcher();

// Whether torchrun, or a script that sets RANK and WORLD_SIZE, has started this process as one of
// several. Variables of an MPI launcher count more, as in Python.
bool launched_by_torch();

// For a process that is a world of its own. Throws TopologyError if a variable of any launcher says
// that it is one of several: each of them would train alone. Local.
void check_alone();

// Throws TopologyError when the launcher started more ranks than MPI sees. Local.
void check_launcher(const Launcher& launcher, int mpi_ranks);

// Throws TopologyError if the connection to the launcher of MPICH that PMI_FD names is not open in
// this process: MPI_Init would end it with the launcher's code 15. Local.
void check_connection(const Launcher& launcher);

// This process's number as its launcher gave it; 0 without one.
int launched_rank();

// The processes of the job on this host, as its launcher counts them; 0 if it does not say.
int launched_neighbors();

// Returns options.start_limit, or ZERO_START_LIMIT in seconds if it is set. Throws ConfigError.
std::chrono::milliseconds chosen_start_limit(const WorldOptions& options);

// Returns options.transport, or ZERO_TRANSPORT if it is set. Throws ConfigError for unknown names.
std::string chosen_transport(const WorldOptions& options);

// This process is killed when its parent, the launcher, dies.
void die_with_parent();

}  // namespace zero::comm
