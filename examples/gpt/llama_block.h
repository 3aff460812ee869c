// A block of Llama: pre-RMSNorm, rotary embedding of queries and keys, grouped-query attention,
// SwiGLU.
#pragma once

#include <cstdint>

#include "examples/gpt/attention.h"
#include "examples/gpt/buffer.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/linear.h"
#include "examples/gpt/model_config.h"
#include "examples/gpt/norm.h"
#include "examples/gpt/parameters.h"
#include "examples/gpt/rope.h"

namespace gpt {

template <class T>
struct LlamaWorkspace {
  LlamaWorkspace(const Dims& dims, Matmul& matmul, const LlamaConfig& config);
  std::int64_t bytes() const;

  Attention<T> attention;
  Rope<T> rope;
  Buffer<T> narrow_gradient;                  // [rows, C]
  Buffer<T> dattended, dquery, dkey, dvalue;  // [rows, channels of all heads]
  Buffer<T> gate_gradient, up_gradient;       // [rows, inner]
};

// As BlocksOf wants it.
template <class T>
class LlamaBlock {
 public:
  using Workspace = LlamaWorkspace<T>;

  // The workspace outlives the block.
  LlamaBlock(const Dims& dims, Matmul& matmul, Workspace& workspace, const LlamaConfig& config);

  void forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out);
  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient);
  std::int64_t bytes() const;

 private:
  struct Values;
  struct Gradients;

  Values values_of(const ParameterValues<T>& parameters) const;
  Gradients gradients_of(ParameterGradients<T>& parameters) const;
  void intermediates(int layer, const T* in, const Values& values);
  void attend(const Values& values);
  void backward_mlp(const Values& values, const Gradients& gradients, T* gradient);
  void backward_attention(const T* in, const Values& values, const Gradients& gradients,
                          T* gradient);
  Qkv<const T> qkv() const;

  Dims dims_;
  zero::ThreadPool& pool_;
  Workspace& workspace_;
  bool query_key_value_bias_, output_bias_, mlp_bias_;
  Norm<T> norm_1_, norm_2_;
  Linear<T> query_linear_, key_linear_, value_linear_, output_, gate_linear_, up_linear_, down_;
  Buffer<T> normed_1_, query_, key_, value_, attended_, middle_, normed_2_, gate_, up_, activated_;
  Buffer<accumulate_t<T>> log_sums_;
  int held_layer_ = -1;
};

}  // namespace gpt
