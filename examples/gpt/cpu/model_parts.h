// Parts that a model builds from its config and part names, on the CPU and on a GPU: blocks and the
// loss head's parameters.
#pragma once

#include <cstdint>
#include <memory>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/cpu/loss_head.h"
#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/parameters.h"

namespace gpt {

template <class Layers>
std::unique_ptr<Blocks<typename Layers::T>> make_blocks(const ModelConfig& config,
                                                        Activations activations, const Dims& dims,
                                                        typename Layers::Products& matmul,
                                                        Products products = Products::apart) {
  return make_blocks<Layers>(config, held_layers(activations, config.layers), dims, matmul,
                             products);
}

// For the activations of `held` layers.
template <class Layers>
std::unique_ptr<Blocks<typename Layers::T>> make_blocks(const ModelConfig& config,
                                                        std::int64_t held, const Dims& dims,
                                                        typename Layers::Products& matmul,
                                                        Products products = Products::apart) {
  return std::make_unique<ListedBlocks<Layers>>(held, dims, block_plan_of(config, products),
                                                config.rope, matmul);
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
