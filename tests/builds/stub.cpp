// Uses a part of each thing that it is linked with, and prints which back ends answer.
#include <zero/zero.h>

#ifdef STUB_OF_TORCH
#include <torch/nn/modules/linear.h>

#include "pytorch/wrap_policy.h"
#endif

#include <cstdio>

namespace {

void train() {
  zero::Runtime runtime = zero::Runtime::single();
  zero::ModelSpec model;
  model.unit("unit").param("weight", {8, 8});
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  const zero::Engine engine(runtime, model, config);
  std::printf("%s\n", runtime.describe().c_str());
}

void find_gpu() {
  try {
    zero::RuntimeOptions options;
    options.device = "cuda";
    zero::Runtime runtime = zero::Runtime::single(options);
    std::printf("CUDA: a GPU\n");
  } catch (const zero::TopologyError& error) {
    std::printf("CUDA: %s\n", error.what());
  }
}

}  // namespace

int main() {
  train();
  find_gpu();
#ifdef STUB_OF_TORCH
  const torch::nn::Linear module(4, 4);
  std::printf("torch: %zu units\n", zero::pytorch::declare_units(*module, {}).size());
#endif
}
