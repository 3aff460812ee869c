// The ranks of a job as one process sees them: who they are, on which nodes, over which transport,
// and how a failure on one reaches the others. Made once per Runtime; owns the world communicator.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "zero/base/device.h"

namespace zero {
class Rendezvous;  // zero/base/rendezvous.h
}  // namespace zero

namespace zero::comm {

// Where the ranks are. Rank r runs on node node_of[r]; nodes are numbered by their lowest rank.
struct Topology {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this node, in rank order
  int node = 0, node_count = 1;
  std::vector<int> node_of = {0};

  // How many ranks each node has, where all have as many and those of a node are neighbours; else
  // -1.
  int neighbours_per_node() const;
};

struct WorldOptions {
  // "auto", "self", "shm", "mpi", "gloo", "hierarchical"; auto is self for one rank, shm on one
  // node, else hierarchical, which is mpi or gloo if each rank has a node of its own.
  std::string transport = "auto";
  std::chrono::milliseconds time_limit{600'000};
  std::chrono::milliseconds start_limit{120'000};
  bool share_gpu = false;  // several ranks may use one GPU
  bool abort_job = true;   // false: a failure is only reported, the host program decides
  std::shared_ptr<Rendezvous> rendezvous;  // how the ranks find each other; null: MPI
};

class World {
 public:
  virtual ~World() = default;

  virtual const Topology& topology() const = 0;
  virtual Communicator& communicator() = 0;
  // Collective: the same ranks, for buffers in the memory of these devices, with calls that go to a
  // stream. Throws TopologyError where this world cannot have that.
  virtual std::unique_ptr<Communicator> connect(Device& device);
  // False where MPI gave less than MPI_THREAD_MULTIPLE: communication then runs on the caller's
  // thread.
  virtual bool communicates_from_any_thread() const = 0;
  // "shm over 4 ranks on 1 node": the start-up line.
  virtual std::string describe() const = 0;

  // Any thread. Publishes this rank's failure as the first cause, unless another was first; wakes
  // the waits of all ranks with PeerFailed. Returns true when this rank's was the first of its
  // node, so that exactly one rank prints it.
  virtual bool fail(const std::string& reason, int exit_code) noexcept = 0;
  // The rank whose failure was the first, as far as this rank knows; this rank, where none is
  // known.
  virtual int failed_rank() const noexcept { return topology().rank; }
  // Any thread. Whether a rank has failed, as far as this node knows.
  virtual bool failed() const noexcept = 0;
  // After fail() or PeerFailed: ends the job with the code, in bounded time; peers get a moment to
  // leave by themselves first. Returns only where abort_job is false.
  virtual void abort(int exit_code) noexcept = 0;
};

// Makes the World over options.rendezvous, if there is one; otherwise over MPI. Initializes MPI with
// THREAD_MULTIPLE if it is not yet, and only then finalizes it. Without an MPI launcher it is one
// rank. Throws TopologyError when the environment's launcher
// variables (OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS) say more ranks than MPI sees.
std::unique_ptr<World> create_world(int& argc, char**& argv, const WorldOptions& options);
// Makes a World of one rank, without MPI.
std::unique_ptr<World> create_single_world(const WorldOptions& options);
// What tests vary.
struct ThreadSettings {
  std::int64_t half_bytes = 128 * 1024;  // of the bounce area
  bool read_in_place = true;  // false: all data takes the way of processes without shared arenas
};
// N ranks as threads of this process: element r belongs to the thread of rank r.
std::vector<std::unique_ptr<World>> create_thread_worlds(int ranks, const WorldOptions& options,
                                                         const ThreadSettings& settings = {});

}  // namespace zero::comm
