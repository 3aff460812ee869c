// A block of GPT-2 on a GPU, as examples/gpt/gpt2_block.h is on the CPU.
#pragma once

#include <cstdint>

#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/layers.h"
#include "examples/gpt/parameters.h"

namespace gpt::cuda {

template <class T>
struct Gpt2Workspace {
  Gpt2Workspace(const Dims& dims, DeviceMatmul& matmul);
  std::int64_t bytes() const;

  DeviceBuffer<T> narrow_gradient, wide_gradient;  // [rows, C] and [rows, 4 C]
  DeviceBuffer<float> deltas, sums;                // of attention, and of columns
};

// As BlocksOf wants it.
template <class T>
class Gpt2Block {
 public:
  using Workspace = Gpt2Workspace<T>;

  // The workspace outlives the block.
  Gpt2Block(const Dims& dims, DeviceMatmul& matmul, Workspace& workspace);

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
    const std::int64_t c = dims_.channels;
    return {qkv, qkv + c, qkv + 2 * c, 3 * c, 3 * c};
  }

  Dims dims_;
  cudaStream_t stream_;
  Workspace& workspace_;
  Norm<T> ln_1_, ln_2_;
  Linear<T> qkv_linear_, projection_, expand_, contract_;
  DeviceBuffer<T> normed_1_, qkv_, attended_, middle_, normed_2_, expanded_, activated_;
  DeviceBuffer<float> log_sums_;
  int held_layer_ = -1;
};

}  // namespace gpt::cuda
