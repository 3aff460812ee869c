#include "examples/gpt/gpt2_block.h"

#include <algorithm>

namespace gpt {
namespace {

constexpr std::int64_t element_grain = 1024;

}  // namespace

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
Gpt2Workspace<T>::Gpt2Workspace(const Dims& dims, Matmul& matmul)
    : attention(dims, matmul),
      narrow_gradient(dims.rows() * dims.channels),
      wide_gradient(dims.rows() * dims.inner) {}

template <class T>
std::int64_t Gpt2Workspace<T>::bytes() const {
  return attention.bytes() +
         static_cast<std::int64_t>(narrow_gradient.bytes() + wide_gradient.bytes());
}

template <class T>
Gpt2Block<T>::Gpt2Block(const Dims& dims, Matmul& matmul, Workspace& workspace)
    : pool_(matmul.pool()),
      kernels_(kernels<T>()),
      workspace_(workspace),
      channels_(dims.channels),
      ln_1_(dims, matmul.pool()),
      ln_2_(dims, matmul.pool()),
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

// All that backward() reads: everything but the last product.
template <class T>
void Gpt2Block<T>::intermediates(int layer, const T* in, const Values& v) {
  ln_1_.forward(in, v.ln_1, normed_1_.data());
  qkv_linear_.forward(normed_1_.data(), v.qkv, qkv_.data());
  workspace_.attention.forward(split<const T>(qkv_.data()), attended_.data(), log_sums_.data());
  std::copy_n(in, middle_.size(), middle_.data());
  projection_.forward(attended_.data(), v.projection, middle_.data(), true);
  ln_2_.forward(middle_.data(), v.ln_2, normed_2_.data());
  expand_.forward(normed_2_.data(), v.expand, expanded_.data());
  pool_.for_ranges(expanded_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels_.gelu_forward(expanded_.data(), activated_.data(), {begin, end});
  });
  held_layer_ = layer;
}

template <class T>
void Gpt2Block<T>::forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out) {
  const Values values(parameters);
  intermediates(layer, in, values);
  std::copy_n(middle_.data(), middle_.size(), out);
  contract_.forward(activated_.data(), values.contract, out, true);
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
  T* wide = workspace_.wide_gradient.data();
  contract_.parameter_gradients(activated_.data(), gradient, g.contract);
  contract_.input_gradient(gradient, v.contract.weight, wide);
  pool_.for_ranges(expanded_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels_.gelu_backward(expanded_.data(), wide, {begin, end});
  });
  expand_.parameter_gradients(normed_2_.data(), wide, g.expand);
  expand_.input_gradient(wide, v.expand.weight, workspace_.narrow_gradient.data());
  ln_2_.backward(workspace_.narrow_gradient.data(), middle_.data(), v.ln_2, gradient, g.ln_2);
}

template <class T>
void Gpt2Block<T>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                      T* gradient) {
  T* narrow = workspace_.narrow_gradient.data();
  T* dqkv = workspace_.wide_gradient.data();
  projection_.parameter_gradients(attended_.data(), gradient, g.projection);
  projection_.input_gradient(gradient, v.projection.weight, narrow);
  workspace_.attention.backward(
      {split<const T>(qkv_.data()), attended_.data(), narrow, log_sums_.data(), split<T>(dqkv)});
  qkv_linear_.parameter_gradients(normed_1_.data(), dqkv, g.qkv);
  qkv_linear_.input_gradient(dqkv, v.qkv.weight, narrow);
  ln_1_.backward(narrow, in, v.ln_1, gradient, g.ln_1);
}

template <class T>
std::int64_t Gpt2Block<T>::bytes() const {
  std::int64_t elements = 0;
  for (const Buffer<T>* buffer :
       {&normed_1_, &qkv_, &attended_, &middle_, &normed_2_, &expanded_, &activated_})
    elements += buffer->size();
  return elements * static_cast<std::int64_t>(sizeof(T)) +
         static_cast<std::int64_t>(log_sums_.bytes()) + ln_1_.bytes() + ln_2_.bytes();
}

template struct Gpt2Workspace<float>;
template struct Gpt2Workspace<zero::bf16>;
template struct Gpt2Workspace<zero::fp16>;
template struct Gpt2Workspace<double>;
template class Gpt2Block<float>;
template class Gpt2Block<zero::bf16>;
template class Gpt2Block<zero::fp16>;
template class Gpt2Block<double>;

}  // namespace gpt
