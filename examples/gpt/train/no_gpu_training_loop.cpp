#include "examples/gpt/train/gpu_training_loop.h"

namespace gpt {

bool can_train_on_gpu() noexcept {
  return false;
}

std::int64_t gpu_memory_bytes() noexcept {
  return 0;
}

std::unique_ptr<TrainingLoop> make_gpu_training_loop(zero::Runtime&, zero::Engine&, const Task&) {
  throw zero::TopologyError("--device cuda: this train_gpt was built without CUDA and cuBLASLt");
}

}  // namespace gpt
