#include "comm/environment.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "zero/base/error.h"
#include "zero/base/time_limit.h"

namespace zero::comm {
namespace {

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// Set by launchers for each process: the number of ranks, of all or of one node, or a rank's
// number. A batch script of Slurm is not a rank, but has the sizes of the job: Slurm's variables
// count inside of a step only.
constexpr const char* size_names[] = {
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE",
    "MPI_LOCALNRANKS",      "MV2_COMM_WORLD_SIZE",        "FLUX_JOB_SIZE",
    "PALS_LOCAL_SIZE",      "JSM_NAMESPACE_SIZE",         "SLURM_STEP_NUM_TASKS",
    "WORLD_SIZE",           "LOCAL_WORLD_SIZE",
};
constexpr const char* rank_names[] = {
    "OMPI_COMM_WORLD_RANK", "PMI_RANK",    "PMIX_RANK",          "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK",
    "SLURM_PROCID",         "RANK",        "LOCAL_RANK",
};

bool counts_as_size(std::string_view variable) {
  return !variable.starts_with("SLURM_") || std::getenv("SLURM_STEP_ID") != nullptr;
}

}  // namespace

bool launched_by_torch() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return false;
  // torchrun inside of Slurm's step is the inner launcher.
  const bool inside_step =
      std::getenv("TORCHELASTIC_RUN_ID") != nullptr && std::getenv("SLURM_STEP_ID") != nullptr;
  if (!inside_step && (std::getenv("PMI_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr))
    return false;
  return number_in("WORLD_SIZE") > 1 || number_in("RANK") > 0;
}

void check_alone() {
  std::string claim;
  for (const char* name : size_names)
    if (claim.empty() && counts_as_size(name) && number_in(name) > 1)
      claim = std::string(name) + " says " + std::getenv(name) + " ranks";
  for (const char* name : rank_names)
    if (claim.empty() && number_in(name) > 0)
      claim = std::string(name) + " says that this is rank " + std::getenv(name);
  if (claim.empty()) return;
  throw TopologyError(
      claim +
      ", and this process found no other: each would train alone. Start the ranks with the "
      "mpirun of the MPI that the program was built with, with srun --mpi=pmix (srun --mpi=list "
      "shows what it can do), or on one host with torchrun --no-python, or with RANK, WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT set for each. If separate trainings are meant, or the variable "
      "is left over, unset it");
}

Launcher find_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const int ranks = number_in(variable); ranks > 0) return {variable, ranks};
  if (std::getenv("SLURM_STEP_ID") == nullptr) return {};
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    if (const int ranks = number_in(variable); ranks > 0) return {variable, ranks};
  return {};
}

void check_launcher(const Launcher& launcher, int mpi_ranks) {
  if (launcher.ranks <= mpi_ranks) return;
  throw TopologyError(
      launcher.variable + " says " + std::to_string(launcher.ranks) + " ranks, but MPI sees " +
      std::to_string(mpi_ranks) +
      ": the program was built with another MPI than the launcher's; start it with the mpirun of "
      "the MPI it was built with, with srun --mpi=pmix (srun --mpi=list shows what it can do), or "
      "with torchrun (--no-python for a program that is no script), after the variables of " +
      launcher.variable.substr(0, launcher.variable.find('_')) + " are unset");
}

void check_connection(const Launcher& launcher) {
  const char* text = std::getenv("PMI_FD");
  if (launcher.variable != "PMI_SIZE" || text == nullptr) return;
  struct stat status {};
  if (fstat(std::atoi(text), &status) == 0 && S_ISSOCK(status.st_mode)) return;
  throw TopologyError(
      "MPI cannot reach its launcher: PMI_FD is " + std::string(text) +
      ", and this process has no such connection. The launcher has started another program, which "
      "closed the connection and started this one, as torchrun does: start the ranks with mpiexec "
      "alone, or with torchrun alone");
}

int launched_rank() {
  if (launched_by_torch()) return number_in("RANK");
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

int launched_neighbors() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                           "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE", "LOCAL_WORLD_SIZE"})
    if (const int ranks = number_in(name); ranks > 0) return ranks;
  return 0;
}

std::chrono::milliseconds chosen_start_limit(const WorldOptions& options) {
  const char* text = std::getenv("ZERO_START_LIMIT");
  if (text == nullptr || *text == '\0') return options.start_limit;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds > 0))
    throw ConfigError(std::string("ZERO_START_LIMIT is \"") + text +
                      "\"; it must be a number of seconds above 0");
  return time_limit_of(seconds);
}

std::string chosen_transport(const WorldOptions& options) {
  const char* forced = std::getenv("ZERO_TRANSPORT");
  const bool from_environment = forced != nullptr && *forced != '\0';
  const std::string name = from_environment ? forced : options.transport;
  for (const char* known : {"auto", "self", "shm", "mpi", "gloo", "hierarchical"})
    if (name == known) return name;
  throw ConfigError(std::string(from_environment ? "ZERO_TRANSPORT" : "the transport") + " is \"" +
                    name + "\"; it must be auto, self, shm, mpi, gloo or hierarchical");
}

void die_with_parent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died just before the request took effect.
  if (getppid() != parent) raise(SIGKILL);
}

}  // namespace zero::comm
