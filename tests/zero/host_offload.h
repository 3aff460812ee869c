// A small model on mock devices whose state, and parameters, are kept in host memory.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/support/mock_ranks.h"

namespace host_offload {

constexpr int steps = 4;
constexpr toy::Dims dims{.vocabulary = 31, .channels = 72, .blocks = 3, .batch = 2};
inline const mock::Training training{dims, steps};

inline zero::Config config_of(int stage, int accumulation = 1, bool bf16 = true) {
  zero::Config config = toy::config(stage, dims, accumulation);
  config.bf16_enabled = bf16;
  return config;
}

// An elementwise update rule, and a group with its own rate.
inline zero::Config with_rule(zero::Config config, const char* type) {
  config.optimizer = zero::optim::default_options(type);
  config.optimizer.learning_rate = 0.01;
  config.optimizer.weight_decay = 0.1;
  if (config.optimizer.type == "SGD") config.optimizer.momentum = 0.9;
  config.zero_core.param_groups["biases"].lr_scale = 0.5;
  return config;
}

// In chunks of 2048 elements; nothing stays on the device but by the ratio.
inline zero::Config offloaded(zero::Config config, double ratio = 1) {
  config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  config.zero_optimization.offload_optimizer.ratio = ratio;
  config.zero_core.offload_chunk_bytes = 1;
  config.zero_core.offload_keep_bytes = 0;
  return config;
}

inline zero::Config with_parameters(zero::Config config, int buffers = 5) {
  config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
  config.zero_optimization.offload_param.buffer_count = buffers;
  return config;
}

inline void compare(int ranks, const toy::Trace& expected, const zero::Config& config) {
  training.compare(
      ranks, expected, config,
      {mock::Order::compute_first, mock::Order::communication_first, mock::Order::one_last,
       mock::Order::one_last, mock::Order::random, mock::Order::one_queue});
}

inline std::int64_t planned(const std::vector<zero::MemoryUse>& tier, const char* category) {
  for (const zero::MemoryUse& use : tier)
    if (use.category == category) return use.planned;
  return -1;
}

inline std::int64_t total(const std::vector<zero::MemoryUse>& tier) {
  std::int64_t sum = 0;
  for (const zero::MemoryUse& use : tier) {
    CHECK(use.current == use.planned);
    CHECK(use.peak == use.planned);
    sum += use.planned;
  }
  return sum;
}

}  // namespace host_offload
