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
  options.tensor_ranks = 1;
  if (model_parallel != MPI_COMM_NULL) MPI_Comm_size(model_parallel, &options.tensor_ranks);
  auto ranks = options.tensor_ranks == 1
                   ? comm::create_hosted_world(data_parallel, world)
                   : comm::create_hosted_world(data_parallel, model_parallel, world);
  return Runtime(std::make_unique<detail::RuntimeCore>(std::move(ranks), std::move(options)));
}

}  // namespace zero
