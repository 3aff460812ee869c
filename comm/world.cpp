#include "comm/world.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "comm/environment.h"
#include "comm/mpi/mpi_bootstrap.h"
#include "comm/process_world.h"
#include "comm/rendezvous/rendezvous_world.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/self/self_communicator.h"
#include "zero/base/error.h"
#include "zero/base/rendezvous.h"
#include "zero/base/simd.h"

namespace zero::comm {
namespace {

// A single rank, without MPI.
class SingleWorld final : public World {
 public:
  explicit SingleWorld(const WorldOptions& options) : abort_job_(options.abort_job) {
    communicator_.set_time_limit(options.time_limit);
  }

  const Topology& topology() const override { return topology_; }
  Communicator& communicator() override { return communicator_; }
  bool communicates_from_any_thread() const override { return true; }
  std::string describe() const override { return "self: 1 rank, without MPI"; }
  bool fail(const std::string&, int) noexcept override { return !failed_.exchange(true); }
  bool failed() const noexcept override { return failed_; }
  void abort(int exit_code) noexcept override {
    if (!abort_job_) return;
    std::fflush(nullptr);
    _exit(exit_code);
  }

 private:
  Topology topology_;
  bool abort_job_;
  SelfCommunicator communicator_;
  std::atomic<bool> failed_{false};
};

}  // namespace

int Topology::neighbors_per_node() const {
  const int each = size / node_count;
  for (int other = 0; node_count > 1 && other < size; ++other)
    if (node_of[other] != other / each) return -1;
  return each;
}

std::unique_ptr<Communicator> World::connect(Device& device) {
  throw TopologyError(describe() + ": no transport for buffers of device " + device.kind() +
                      "; use device cpu");
}

std::unique_ptr<World> create_single_world(const WorldOptions& options) {
  return std::make_unique<SingleWorld>(options);
}

std::unique_ptr<World> create_world(int& argc, char**& argv, const WorldOptions& options) {
  const Launcher launcher = find_launcher();
  WorldOptions chosen = options;
  const bool by_torch = !options.rendezvous && launched_by_torch() && !mpi_initialized();
  const auto ranks = [&] { return chosen.rendezvous ? chosen.rendezvous->size() : launcher.ranks; };
  const bool alone = !by_torch && ranks() <= 1;
  StartProblem problem;
  try {
    chosen.start_limit = chosen_start_limit(options);
    chosen.transport = chosen_transport(options);
    simd_level();  // reports a wrong ZERO_SIMD now, not at the first sum
  } catch (const ConfigError& error) {
    if (alone) throw;
    // The environment may be wrong on this rank only, and peers would wait in MPI's start.
    problem = StartProblem::current(error);
    chosen.transport = "auto";
  }
  if (by_torch) chosen.rendezvous = join_store(chosen.start_limit);
  if (chosen.transport == "self") {
    if (!alone)
      throw TopologyError("transport self is for one rank, but " +
                          (chosen.rendezvous ? "the rendezvous" : launcher.variable) + " says " +
                          std::to_string(ranks()));
    check_alone();
    return create_single_world(chosen);
  }
  if (chosen.rendezvous) return create_rendezvous_world(chosen, problem);
  if (chosen.transport == "auto" && !launcher.found() && !mpi_initialized()) {
    check_alone();
    return create_single_world(chosen);
  }
  return create_process_world(create_mpi_bootstrap(argc, argv, launcher, chosen, problem), chosen);
}

}  // namespace zero::comm
