#include "comm/world.h"

#include "comm/environment.h"
#include "comm/mpi/mpi_world.h"
#include "comm/single_world.h"
#include "zero/base/error.h"

namespace zero::comm {

std::unique_ptr<Communicator> World::connect(Device& device) {
  throw TopologyError(describe() + ": no transport for buffers of device " + device.kind() +
                      "; use device cpu");
}

std::unique_ptr<World> create_world(int& argc, char**& argv, const WorldOptions& options) {
  const Launcher launcher = find_launcher();
  WorldOptions chosen = options;
  chosen.transport = chosen_transport(options);
  const bool alone = launcher.ranks <= 1;
  if (chosen.transport == "self") {
    if (!alone)
      throw TopologyError("transport self is for one rank, but " + launcher.variable + " says " +
                          std::to_string(launcher.ranks));
    return create_single_world(chosen);
  }
  if (chosen.transport == "auto" && !launcher.found() && !mpi_initialized())
    return create_single_world(chosen);
  return create_mpi_world(argc, argv, launcher, chosen);
}

}  // namespace zero::comm
