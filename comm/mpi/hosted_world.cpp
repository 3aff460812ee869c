#include "comm/mpi/hosted_world.h"

#include "comm/environment.h"
#include "comm/process_world.h"

namespace zero::comm {

std::unique_ptr<World> create_hosted_world(MPI_Comm data_parallel, const WorldOptions& options) {
  WorldOptions chosen = options;
  chosen.start_limit = chosen_start_limit(options);
  chosen.transport = chosen_transport(options);
  return create_process_world(adopt_mpi(data_parallel, chosen), chosen);
}

}  // namespace zero::comm
