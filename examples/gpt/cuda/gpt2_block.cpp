#include "examples/gpt/cuda/gpt2_block.h"

#include <algorithm>

namespace gpt::cuda {

template <class T>
struct Gpt2Block<T>::Values {
  explicit Values(const ParameterValues<T>& of)
      : ln_1{of.value("ln_1.weight"), of.value("ln_1.bias")},
        ln_2{of.value("ln_2.weight"), of.value("ln_2.bias")},
        qkv{of.value("attn.c_attn.weight"), of.value("attn.c_attn.bias")},
        projection{of.value("attn.c_proj.weight"), of.value("attn.c_proj.bias")},
        expand{of.value("mlp.c_fc.weight"), of.value("mlp.c_fc.bias")},
        contract{of.value("mlp.c_proj.weight"), of.value("mlp.c_proj.bias")} {}

  NormValues<T> ln_1, ln_2;
  LinearValues<T> qkv, projection, expand, contract;
};

template <class T>
struct Gpt2Block<T>::Gradients {
  explicit Gradients(ParameterGradients<T>& of)
      : ln_1{of.grad("ln_1.weight"), of.grad("ln_1.bias")},
        ln_2{of.grad("ln_2.weight"), of.grad("ln_2.bias")},
        qkv{of.target("attn.c_attn.weight"), of.grad("attn.c_attn.bias")},
        projection{of.target("attn.c_proj.weight"), of.grad("attn.c_proj.bias")},
        expand{of.target("mlp.c_fc.weight"), of.grad("mlp.c_fc.bias")},
        contract{of.target("mlp.c_proj.weight"), of.grad("mlp.c_proj.bias")} {}

  NormGradients<T> ln_1, ln_2;
  LinearGradients<T> qkv, projection, expand, contract;
};

template <class T>
Gpt2Workspace<T>::Gpt2Workspace(const Dims& dims, DeviceMatmul&)
    : narrow_gradient(dims.rows() * dims.channels),
      wide_gradient(dims.rows() * dims.inner),
      deltas(dims.batch * dims.heads * dims.sequence),
      sums(column_scratch(dims.rows(), std::max(3 * dims.channels, dims.inner))) {}

template <class T>
std::int64_t Gpt2Workspace<T>::bytes() const {
  return static_cast<std::int64_t>(narrow_gradient.bytes() + wide_gradient.bytes() +
                                   deltas.bytes() + sums.bytes());
}

template <class T>
Gpt2Block<T>::Gpt2Block(const Dims& dims, DeviceMatmul& matmul, Workspace& workspace)
    : dims_(dims),
      stream_(matmul.stream()),
      workspace_(workspace),
      ln_1_(dims, stream_),
      ln_2_(dims, stream_),
      qkv_linear_({dims.rows(), dims.channels, 3 * dims.channels}, matmul),
      projection_({dims.rows(), dims.channels, dims.channels}, matmul),
      expand_({dims.rows(), dims.channels, dims.inner}, matmul),
      contract_({dims.rows(), dims.inner, dims.channels}, matmul),
      normed_1_(dims.rows() * dims.channels),
      qkv_(dims.rows() * dims.channels * 3),
      attended_(dims.rows() * dims.channels),
      middle_(dims.rows() * dims.channels),
      normed_2_(dims.rows() * dims.channels),
      expanded_(dims.rows() * dims.inner),
      activated_(dims.rows() * dims.inner),
      log_sums_(dims.batch * dims.heads * dims.sequence) {}

// All that backward() reads: everything but the last product. Residuals are the products' addends.
template <class T>
void Gpt2Block<T>::intermediates(int layer, const T* in, const Values& v) {
  ln_1_.forward(in, v.ln_1, normed_1_.data());
  qkv_linear_.forward(normed_1_.data(), v.qkv, qkv_.data());
  attention_forward(
      AttentionForward<T>{dims_, split<const T>(qkv_.data()), attended_.data(), log_sums_.data()},
      stream_);
  projection_.forward(attended_.data(), v.projection, middle_.data(), in);
  ln_2_.forward(middle_.data(), v.ln_2, normed_2_.data());
  expand_.forward(normed_2_.data(), v.expand, expanded_.data());
  gelu_forward(expanded_.data(), activated_.data(), expanded_.size(), stream_);
  held_layer_ = layer;
}

template <class T>
void Gpt2Block<T>::forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out) {
  const Values values(parameters);
  intermediates(layer, in, values);
  contract_.forward(activated_.data(), values.contract, out, middle_.data());
}

template <class T>
void Gpt2Block<T>::backward(int layer, const T* in, ParameterGradients<T>& parameters,
                            T* gradient) {
  const Values values(parameters);
  const Gradients gradients(parameters);
  if (held_layer_ != layer) intermediates(layer, in, values);
  backward_mlp(values, gradients, gradient);
  backward_attention(in, values, gradients, gradient);
}

template <class T>
void Gpt2Block<T>::backward_mlp(const Values& v, const Gradients& g, T* gradient) {
  T *wide = workspace_.wide_gradient.data(), *narrow = workspace_.narrow_gradient.data();
  float* sums = workspace_.sums.data();
  contract_.parameter_gradients(activated_.data(), gradient, g.contract, sums);
  contract_.input_gradient(gradient, v.contract.weight, wide);
  gelu_backward(expanded_.data(), wide, expanded_.size(), stream_);
  expand_.parameter_gradients(normed_2_.data(), wide, g.expand, sums);
  expand_.input_gradient(wide, v.expand.weight, narrow);
  ln_2_.backward(narrow, middle_.data(), v.ln_2, gradient, g.ln_2, sums);
}

template <class T>
void Gpt2Block<T>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                      T* gradient) {
  T *narrow = workspace_.narrow_gradient.data(), *dqkv = workspace_.wide_gradient.data();
  float* sums = workspace_.sums.data();
  projection_.parameter_gradients(attended_.data(), gradient, g.projection, sums);
  projection_.input_gradient(gradient, v.projection.weight, narrow);
  attention_backward(
      AttentionBackward<T>{dims_, split<const T>(qkv_.data()), attended_.data(), narrow,
                           log_sums_.data(), workspace_.deltas.data(), split<T>(dqkv)},
      stream_);
  qkv_linear_.parameter_gradients(normed_1_.data(), dqkv, g.qkv, sums);
  qkv_linear_.input_gradient(dqkv, v.qkv.weight, narrow);
  ln_1_.backward(narrow, in, v.ln_1, gradient, g.ln_1, sums);
}

template <class T>
std::int64_t Gpt2Block<T>::bytes() const {
  std::size_t bytes = log_sums_.bytes();
  for (const DeviceBuffer<T>* buffer :
       {&normed_1_, &qkv_, &attended_, &middle_, &normed_2_, &expanded_, &activated_})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes) + ln_1_.bytes() + ln_2_.bytes();
}

#define GPT_INSTANTIATE(T)          \
  template struct Gpt2Workspace<T>; \
  template class Gpt2Block<T>;
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
