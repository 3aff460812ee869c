// The training loop on a rank's GPU; builds without CUDA have none.
#pragma once

#include <cstdint>
#include <memory>

#include "examples/gpt/train/training_loop.h"

namespace gpt {

// Returns whether this build has the kernels and this process sees a GPU.
bool can_train_on_gpu() noexcept;
// Returns the memory of this rank's GPU; 0 if there is none.
std::int64_t gpu_memory_bytes() noexcept;

// The runtime's device must be a GPU. Throws MemoryError, and TopologyError in builds without
// kernels.
std::unique_ptr<TrainingLoop> make_gpu_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                     const Task& task);

}  // namespace gpt
