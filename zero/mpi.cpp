#include "zero/mpi.h"

#include "comm/mpi/hosted_world.h"
#include "zero/runtime_core.h"

namespace zero {

Runtime adopt(MPI_Comm data_parallel, RuntimeOptions options) {
  if (data_parallel == MPI_COMM_NULL)
    throw UsageError("zero::adopt() was given MPI_COMM_NULL: call it on the ranks of the group");
  auto world = comm::create_hosted_world(data_parallel, detail::world_options(options));
  return Runtime(std::make_unique<detail::RuntimeCore>(std::move(world), std::move(options)));
}

}  // namespace zero
