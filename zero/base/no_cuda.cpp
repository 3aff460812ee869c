#include "zero/base/error.h"
#include "zero/base/gpu.h"

namespace zero {

int gpu_count() noexcept {
  return 0;
}

bool driver_is_too_old() noexcept {
  return false;
}

std::unique_ptr<Device> create_gpu(int, bool) {
  throw TopologyError(
      "device cuda: this program was linked without the CUDA back end; build with ZERO_CUDA=ON "
      "where nvcc is and link ZeroCore::cuda, or use device cpu");
}

}  // namespace zero
