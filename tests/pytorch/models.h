// Small modules, each with one feature that a sharded module must support.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch_models {

struct Model {
  std::shared_ptr<torch::nn::Module> module;
  // The mean loss over a batch that follows from the seed. `call` is the module's forward, wrapped.
  using Wrap = std::function<at::Tensor(const std::function<at::Tensor()>&)>;
  std::function<at::Tensor(std::uint64_t seed, const Wrap& wrap)> loss;
};

struct Family {
  std::string name;
  Model (*make)();
  bool batch_norm = false;  // its buffers follow each rank's own batches
};

// A perceptron that uses its middle layer three times.
Model shared_layer_mlp();
// Residual blocks of convolutions with BatchNorm.
Model residual_convolutions();
// A transformer with learned positions; the embedding is also the head.
Model tied_transformer();
// Linear blocks; a pass leaves out one of them, chosen by the seed.
Model dropped_layers();
// Frozen layers with low-rank adapters that are trained.
Model low_rank_adapters();
// A transformer whose block outputs are not kept: backward recomputes them, by a backward inside
// the backward; two of the three blocks are the same module.
Model recomputed_blocks();
// Experts that get tokens by their content; some get none.
Model experts();

const std::vector<Family>& families();

}  // namespace torch_models
