// A block of Llama on a GPU, as examples/gpt/llama_block.h is on the CPU.
#pragma once

#include <cstdint>

#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/layers.h"
#include "examples/gpt/model_config.h"
#include "examples/gpt/parameters.h"

namespace gpt::cuda {

template <class T>
struct LlamaWorkspace {
  LlamaWorkspace(const Dims& dims, DeviceMatmul& matmul, const LlamaConfig& config);
  std::int64_t bytes() const;

  DeviceBuffer<float> cosines, sines;               // [sequence, head channels / 2]
  DeviceBuffer<T> narrow_gradient;                  // [rows, C]
  DeviceBuffer<T> dattended, dquery, dkey, dvalue;  // [rows, channels of all heads]
  DeviceBuffer<T> gate_gradient, up_gradient;       // [rows, inner]
  DeviceBuffer<float> deltas, sums;                 // of attention, and of columns
};

// As BlocksOf wants it.
template <class T>
class LlamaBlock {
 public:
  using Workspace = LlamaWorkspace<T>;

  // The workspace outlives the block.
  LlamaBlock(const Dims& dims, DeviceMatmul& matmul, Workspace& workspace,
             const LlamaConfig& config);

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
  // direction -1 turns back.
  void turn(T* data, std::int64_t heads, float direction);
  Qkv<const T> qkv() const;

  Dims dims_;
  cudaStream_t stream_;
  Workspace& workspace_;
  bool query_key_value_bias_, output_bias_, mlp_bias_;
  Norm<T> norm_1_, norm_2_;
  Linear<T> query_linear_, key_linear_, value_linear_, output_, gate_linear_, up_linear_, down_;
  DeviceBuffer<T> normed_1_, query_, key_, value_, attended_, middle_, normed_2_, gate_, up_,
      activated_;
  DeviceBuffer<float> log_sums_;
  int held_layer_ = -1;
};

}  // namespace gpt::cuda
