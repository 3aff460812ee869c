// One transformer block, forward and backward. It holds the intermediate values of the layer that
// it ran last, and backward() recomputes them when they are another layer's: one object may serve
// all layers, or each layer has its own. A layer's backward() follows a forward() of its micro
// batch, with the same parameters.
#pragma once

#include <cstdint>

#include "examples/gpt/attention.h"
#include "examples/gpt/buffer.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/layer_norm.h"
#include "examples/gpt/linear.h"

namespace gpt {

template <class T>
struct LinearValues {
  const T* weight;
  const T* bias;
};

template <class T>
struct LinearGradients {
  zero::GradTarget<T> weight;
  T* bias;
};

template <class T>
struct BlockValues {
  NormValues<T> ln_1, ln_2;
  LinearValues<T> qkv, projection, expand, contract;
};

template <class T>
struct BlockGradients {
  NormGradients<T> ln_1, ln_2;
  LinearGradients<T> qkv, projection, expand, contract;
};

// What blocks need only while they run, so one serves them all.
template <class T>
struct BlockWorkspace {
  BlockWorkspace(const Dims& dims, Matmul& matmul);
  std::int64_t bytes() const;

  Attention<T> attention;
  Buffer<T> narrow_gradient, wide_gradient;  // [rows, C] and [rows, 4 C]
};

template <class T>
class Block {
 public:
  // The workspace outlives the block.
  Block(const Dims& dims, Matmul& matmul, BlockWorkspace<T>& workspace);

  // in [rows, C] -> out [rows, C]
  void forward(int layer, const T* in, const BlockValues<T>& values, T* out);
  // `gradient` is that of the block's output, then that of its input.
  void backward(int layer, const T* in, const BlockValues<T>& values,
                const BlockGradients<T>& gradients, T* gradient);

  std::int64_t bytes() const;

 private:
  void intermediates(int layer, const T* in, const BlockValues<T>& values);
  void backward_mlp(const BlockValues<T>& values, const BlockGradients<T>& gradients, T* gradient);
  void backward_attention(const T* in, const BlockValues<T>& values,
                          const BlockGradients<T>& gradients, T* gradient);

  zero::ThreadPool& pool_;
  const Kernels<T>& kernels_;
  BlockWorkspace<T>& workspace_;
  LayerNorm<T> ln_1_, ln_2_;
  Linear<T> qkv_linear_, projection_, expand_, contract_;
  Buffer<T> normed_1_, qkv_, attended_, middle_, normed_2_, expanded_, activated_;
  Buffer<accumulate_t<T>> log_sums_;
  int held_layer_ = -1;
};

}  // namespace gpt
