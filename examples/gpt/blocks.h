// The blocks of a model, forward and backward: what a model family gives beside its names and its
// config. Intermediate values are kept per layer, or held for one layer at a time and recomputed.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "examples/gpt/dims.h"
#include "examples/gpt/parameters.h"

namespace gpt {

// What stays between forward and backward: all that backward reads, or only each block's input,
// from which backward computes the rest again. The bits are the same.
enum class Activations { keep, recompute };

// A layer's backward() follows a forward() of its micro batch, with the same parameters.
template <class T>
class Blocks {
 public:
  virtual ~Blocks() = default;

  // in [rows, C] -> out [rows, C]
  virtual void forward(int layer, const T* in, const ParameterValues<T>& values, T* out) = 0;
  // `gradient` is that of the block's output, then that of its input.
  virtual void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient) = 0;
  virtual std::int64_t bytes() const = 0;
  // By whose kernels it is, where there is a choice.
  virtual std::string attention() const = 0;
};

// Block: of one family. It holds the intermediate values of the layer that it ran last, and its
// backward() recomputes them when they are another layer's. Block::Workspace is what blocks need
// only while they run, so one serves them all. Products: Matmul, or a GPU's.
template <class T, class Block>
class BlocksOf final : public Blocks<T> {
 public:
  template <class Products, class... Settings>
  BlocksOf(std::int64_t held, const Dims& dims, Products& matmul, const Settings&... settings)
      : workspace_(dims, matmul, settings...) {
    for (std::int64_t i = 0; i < held; ++i)
      blocks_.emplace_back(dims, matmul, workspace_, settings...);
  }

  void forward(int layer, const T* in, const ParameterValues<T>& values, T* out) override {
    block_of(layer).forward(layer, in, values, out);
  }
  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient) override {
    block_of(layer).backward(layer, in, parameters, gradient);
  }
  std::int64_t bytes() const override {
    std::int64_t bytes = workspace_.bytes();
    for (const Block& block : blocks_) bytes += block.bytes();
    return bytes;
  }
  std::string attention() const override { return workspace_.layers.attention(); }

 private:
  Block& block_of(int layer) { return blocks_[static_cast<std::size_t>(layer) % blocks_.size()]; }

  typename Block::Workspace workspace_;
  std::deque<Block> blocks_;
};

}  // namespace gpt
