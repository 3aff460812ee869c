// Trains a model of models.h on N ranks, each a thread of this process.
#pragma once

#include <cstdint>
#include <vector>

#include "pytorch/module.h"
#include "tests/pytorch/models.h"
#include "zero/testing.h"

namespace torch_models {

struct Trace {
  std::vector<double> losses, norms;
  std::uint64_t digest = 0;
  std::vector<float> buffers;  // of rank 0
  bool operator==(const Trace&) const = default;
};

zero::Config config_of(int stage, int accumulation = 1);
// Returns the batch of a rank in a micro step: seeds below 100 occur only in the first step.
std::uint64_t seed_of(std::int64_t step, int micro, int rank);
at::Tensor pass(zero::pytorch::ShardedModule& module, const Model& model, std::uint64_t seed);
Trace train(const Model& model, zero::Runtime& runtime, const zero::Config& config, int steps);
Trace train_ranks(Model (*make)(), int ranks, const zero::Config& config, int steps = 4);

}  // namespace torch_models
