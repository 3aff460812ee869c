// A block of GPT-2: pre-LayerNorm, one product for queries, keys and values, GELU.
#pragma once

#include <cstdint>

#include "examples/gpt/attention.h"
#include "examples/gpt/buffer.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/linear.h"
#include "examples/gpt/norm.h"
#include "examples/gpt/parameters.h"

namespace gpt {

template <class T>
struct Gpt2Workspace {
  Gpt2Workspace(const Dims& dims, Matmul& matmul);
  std::int64_t bytes() const;

  Attention<T> attention;
  Buffer<T> narrow_gradient, wide_gradient;  // [rows, C] and [rows, 4 C]
};

// As BlocksOf wants it.
template <class T>
class Gpt2Block {
 public:
  using Workspace = Gpt2Workspace<T>;

  // The workspace outlives the block.
  Gpt2Block(const Dims& dims, Matmul& matmul, Workspace& workspace);

  void forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out);
  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient);
  std::int64_t bytes() const;

 private:
  struct Values;
  struct Gradients;

  void intermediates(int layer, const T* in, const Values& values);
  void backward_mlp(const Values& values, const Gradients& gradients, T* gradient);
  void backward_attention(const T* in, const Values& values, const Gradients& gradients,
                          T* gradient);
  template <class P>
  Qkv<P> split(P* qkv) const {
    return {qkv, qkv + channels_, qkv + 2 * channels_, 3 * channels_, 3 * channels_};
  }

  zero::ThreadPool& pool_;
  const Kernels<T>& kernels_;
  Workspace& workspace_;
  std::int64_t channels_;
  Norm<T> ln_1_, ln_2_;
  Linear<T> qkv_linear_, projection_, expand_, contract_;
  Buffer<T> normed_1_, qkv_, attended_, middle_, normed_2_, expanded_, activated_;
  Buffer<accumulate_t<T>> log_sums_;
  int held_layer_ = -1;
};

}  // namespace gpt
