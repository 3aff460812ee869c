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

// Looks for OMPI_COMM_WORLD_SIZE, PMI_SIZE, then Slurm's variables. These count only inside a step
// made by srun: a batch script has SLURM_NTASKS too, but the script's commands are single
// processes. An mpirun inside an allocation sets a variable that is looked for first.
Launcher find_launcher();

// Whether torchrun, or a script that sets RANK and WORLD_SIZE, has started this process as one of
// several. Variables of an MPI launcher count more, as in Python.
bool launched_by_torch();

// For a process without peers. Throws TopologyError if a launcher's variable says that there are
// several processes: each would train alone. Local.
void check_alone();

// Throws TopologyError when the launcher started more ranks than MPI sees. Local.
void check_launcher(const Launcher& launcher, int mpi_ranks);

// Throws TopologyError if the connection to the launcher of MPICH that PMI_FD names is not open in
// this process: MPI_Init would end the process with the launcher's code 15. Local.
void check_connection(const Launcher& launcher);

// This process's rank by the launcher's variables; 0 without a launcher.
int launched_rank();

// The number of the job's processes on this host, by the launcher's variables; 0 without such a
// variable.
int launched_neighbors();

// Returns ZERO_START_LIMIT, in seconds, if set, else options.start_limit. Throws ConfigError.
std::chrono::milliseconds chosen_start_limit(const WorldOptions& options);

// Returns ZERO_TRANSPORT if set, else options.transport. Throws ConfigError for unknown names.
std::string chosen_transport(const WorldOptions& options);

// Lets the kernel kill this process when the parent, the launcher, dies.
void die_with_parent();

}  // namespace zero::comm
