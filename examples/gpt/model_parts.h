// What a model makes of its config and its part names, on the CPU and on a GPU alike: its sizes,
// its family's blocks, and the loss head's parameters.
#pragma once

#include <cstdint>
#include <memory>

#include "examples/gpt/blocks.h"
#include "examples/gpt/family.h"
#include "examples/gpt/gpt2_block.h"
#include "examples/gpt/llama_block.h"
#include "examples/gpt/loss_head.h"
#include "examples/gpt/parameters.h"

namespace gpt {

inline Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  Dims dims = family_of(config).dims(config);
  dims.batch = batch;
  dims.sequence = sequence;
  return dims;
}

template <class Layers>
std::unique_ptr<Blocks<typename Layers::T>> make_blocks(const ModelConfig& config,
                                                        Activations activations, const Dims& dims,
                                                        typename Layers::Products& matmul) {
  using T = typename Layers::T;
  const std::int64_t held = activations == Activations::keep ? config.layers : 1;
  if (config.llama)
    return std::make_unique<BlocksOf<T, LlamaBlock<Layers>>>(held, dims, matmul, *config.llama);
  return std::make_unique<BlocksOf<T, Gpt2Block<Layers>>>(held, dims, matmul);
}

template <class T>
HeadValues<T> head_values(const PartNames& names, const ParameterValues<T>& of) {
  const bool bias = !names.norm_bias.empty();
  return {{of.value(names.norm_weight), bias ? of.value(names.norm_bias) : nullptr},
          of.value(names.classifier)};
}

template <class T>
HeadGradients<T> head_gradients(const PartNames& names, ParameterGradients<T>& of) {
  const bool bias = !names.norm_bias.empty();
  return {{of.grad(names.norm_weight), bias ? of.grad(names.norm_bias) : nullptr},
          of.target(names.classifier)};
}

}  // namespace gpt
