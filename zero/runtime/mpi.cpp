#include "zero/mpi.h"

#include "comm/mpi/hosted_world.h"
#include "zero/runtime/runtime_core.h"

namespace zero {

Runtime adopt(MPI_Comm data_parallel, RuntimeOptions options) {
  return adopt(data_parallel, MPI_COMM_NULL, std::move(options));
}

Runtime adopt(MPI_Comm data_parallel, MPI_Comm model_parallel, RuntimeOptions options) {
  if (data_parallel == MPI_COMM_NULL)
    throw UsageError("zero::adopt() was given MPI_COMM_NULL: call it on the ranks of the group");
  const comm::WorldOptions world = detail::world_options(options);
  auto data = comm::create_hosted_world(data_parallel, world);
  std::unique_ptr<comm::World> model;
  if (model_parallel != MPI_COMM_NULL) model = comm::create_hosted_world(model_parallel, world);
  return Runtime(
      std::make_unique<detail::RuntimeCore>(std::move(data), std::move(options), std::move(model)));
}

}  // namespace zero
