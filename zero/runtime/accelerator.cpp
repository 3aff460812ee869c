#include "zero/runtime/accelerator.h"

#include "zero/base/error.h"
#include "zero/base/gpu.h"

namespace zero::detail {

void require_device(const RuntimeOptions& options) {
  if (options.device == "auto" || options.device == "cpu") return;
  if (options.device != "cuda")
    throw ConfigError("RuntimeOptions::device is \"" + options.device +
                      "\"; expected auto, cpu or cuda");
  if (gpu_count() == 0) create_gpu(0);  // throws with the reason
}

Accelerator create_accelerator(comm::World& world, const RuntimeOptions& options) {
  if (options.device != "cuda") return {};
  try {
    Accelerator accelerator;
    accelerator.device = create_gpu(world.topology().local_rank, options.abort_job);
    accelerator.kernels = optim::create_cuda_kernels();
    accelerator.codec = &comm::wire::cuda_codec();
    if (world.topology().size > 1) accelerator.communicator = world.connect(*accelerator.device);
    return accelerator;
  } catch (const Error& error) {
    world.fail(error.what(), error.exit_code());
    throw;
  }
}

}  // namespace zero::detail
