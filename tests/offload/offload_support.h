// A model whose shards have several chunks, and configs that offload it to a file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/offload/disk_directory.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace offload_support {

inline toy::Dims dims() {
  return {.vocabulary = 31, .channels = 72, .blocks = 3, .batch = 2};
}

inline zero::Config config(int stage, int accumulation = 1, bool bf16 = false) {
  zero::Config c = toy::config(stage, dims(), accumulation);
  c.bf16_enabled = bf16;
  return c;
}

// Optimizer state in the file, in chunks of 2048 elements and blocks of one page.
inline zero::Config with_states(zero::Config c, const std::string& directory) {
  c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
  c.zero_optimization.offload_optimizer.nvme_path = directory;
  c.zero_core.offload_chunk_bytes = 1;
  c.aio.block_size = 4096;
  c.aio.queue_depth = 3;
  return c;
}

inline zero::Config with_parameters(zero::Config c, const std::string& directory) {
  c.zero_optimization.offload_param.device = zero::OffloadDevice::nvme;
  c.zero_optimization.offload_param.nvme_path = directory;
  c.zero_optimization.offload_param.max_in_cpu = 0;
  c.zero_core.offload_chunk_bytes = 1;
  return c;
}

inline toy::Trace run(int ranks, const zero::Config& config, int steps = 4,
                      const char* executor = "inline") {
  toy::Trace trace;
  zero::RuntimeOptions options;
  options.executor = executor;
  options.threads = 1;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        toy::Trace own = toy::train(runtime, dims(), config, steps);
        if (runtime.is_root()) trace = std::move(own);
      },
      options);
  return trace;
}

// Trains in bf16, and reads the state between steps.
inline void train_until(zero::Engine& engine, zero::Runtime& runtime, int step_count) {
  toy::Activations a = toy::make_activations(dims());
  while (engine.step_count() < step_count) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(dims(), a, engine.step_count() * 7 + runtime.rank());
      micro.loss(toy::micro_step<zero::bf16>(engine, dims(), a, micro.loss_scale()));
    }
    engine.step();
  }
}

}  // namespace offload_support
