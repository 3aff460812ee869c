// The ranks of a job from the view of one process: nodes, transport, and how a failure on a rank
// reaches all. One per Runtime; owns the world communicator.
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

// The nodes of the ranks. Rank r runs on node node_of[r]; nodes are numbered by lowest rank.
struct Topology {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this node, in rank order
  int node = 0, node_count = 1;
  std::vector<int> node_of = {0};

  // Returns the number of ranks per node, if it is equal on all nodes and each node has consecutive
  // ranks; else -1.
  int neighbors_per_node() const;
};

struct WorldOptions {
  // "auto", "self", "shm", "mpi", "gloo", "hierarchical"; auto is self for one rank, shm on one
  // node, else hierarchical (mpi or gloo if no node has two ranks).
  std::string transport = "auto";
  std::chrono::milliseconds time_limit{600'000};
  std::chrono::milliseconds start_limit{120'000};
  bool share_gpu = false;  // several ranks may use the same GPU
  bool abort_job = true;   // false: a failure is only reported, the host program decides
  std::shared_ptr<Rendezvous> rendezvous;  // how the ranks find each other; null: MPI
};

class World {
 public:
  virtual ~World() = default;

  virtual const Topology& topology() const = 0;
  virtual Communicator& communicator() = 0;
  // Returns a communicator of the same ranks for buffers in the memory of these devices, with calls
  // ordered on a stream. Throws TopologyError if this world has none. Collective.
  virtual std::unique_ptr<Communicator> connect(Device& device);
  // False if MPI gave less than MPI_THREAD_MULTIPLE: communication then runs on the caller's
  // thread.
  virtual bool communicates_from_any_thread() const = 0;
  // The start-up line, such as "shm over 4 ranks on 1 node".
  virtual std::string describe() const = 0;

  // Any thread. Publishes this rank's failure as the first cause, unless there is a cause already;
  // wakes the waits of all ranks with PeerFailed. Returns true if this rank must print the failure:
  // exactly one rank does.
  virtual bool fail(const std::string& reason, int exit_code) noexcept = 0;
  // The rank whose failure reached this rank first; this rank if there is none.
  virtual int failed_rank() const noexcept { return topology().rank; }
  // Whether a failure has reached this node. Any thread.
  virtual bool failed() const noexcept = 0;
  // Call after fail() or PeerFailed: ends the job with the code, in bounded time, and gives peers a
  // moment to leave by themselves first. Returns only if abort_job is false.
  virtual void abort(int exit_code) noexcept = 0;
};

// Makes the World over options.rendezvous if given; otherwise over MPI. Initializes MPI with
// THREAD_MULTIPLE unless the program has, and finalizes MPI only then. Without an MPI launcher the
// World has one rank. Throws TopologyError if the launcher's variables (OMPI_COMM_WORLD_SIZE,
// PMI_SIZE, SLURM_NTASKS) name more ranks than MPI has.
std::unique_ptr<World> create_world(int& argc, char**& argv, const WorldOptions& options);
// Makes a World of one rank, without MPI.
std::unique_ptr<World> create_single_world(const WorldOptions& options);
// Settings that tests vary.
struct ThreadSettings {
  std::int64_t half_bytes = 128 * 1024;  // of the bounce area
  bool read_in_place = true;  // false: all data takes the way of processes without shared arenas
};
// N ranks as threads of this process: element r belongs to the thread of rank r.
std::vector<std::unique_ptr<World>> create_thread_worlds(int ranks, const WorldOptions& options,
                                                         const ThreadSettings& settings = {});

}  // namespace zero::comm
