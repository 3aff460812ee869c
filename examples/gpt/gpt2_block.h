// A block of GPT-2: pre-LayerNorm, one product for queries, keys and values, GELU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "examples/gpt/attention.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/linear.h"
#include "examples/gpt/norm.h"
#include "examples/gpt/parameters.h"

namespace gpt {

template <class Layers>
struct Gpt2Workspace {
  using Products = typename Layers::Products;

  Gpt2Workspace(const Dims& dims, Products& matmul);
  std::int64_t bytes() const;

  Layers layers;
  typename Layers::template Buffer<typename Layers::T> narrow_gradient,
      wide_gradient;  // [rows, C] and [rows, 4 C]
};

// As BlocksOf wants it. Layers: layers.h, or a GPU's.
template <class Layers>
class Gpt2Block {
 public:
  using T = typename Layers::T;
  using Products = typename Layers::Products;
  using Workspace = Gpt2Workspace<Layers>;

  // The workspace outlives the block.
  Gpt2Block(const Dims& dims, Products& matmul, Workspace& workspace);

  void forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out);
  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient);
  std::int64_t bytes() const;

 private:
  using Buffer = typename Layers::template Buffer<T>;

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

  Workspace& workspace_;
  Layers& layers_;
  std::int64_t channels_;
  typename Layers::Norm ln_1_, ln_2_;
  typename Layers::Linear qkv_linear_, projection_, expand_, contract_;
  Buffer normed_1_, qkv_, attended_, middle_, normed_2_, expanded_, activated_;
  typename Layers::template Buffer<typename Layers::Acc> log_sums_;
  int held_layer_ = -1;
};

template <class Layers>
struct Gpt2Block<Layers>::Values {
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

template <class Layers>
struct Gpt2Block<Layers>::Gradients {
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

template <class Layers>
Gpt2Workspace<Layers>::Gpt2Workspace(const Dims& dims, Products& matmul)
    : layers(dims, matmul, std::max(3 * dims.channels, dims.inner),
             {3 * dims.channels, 3 * dims.channels}),
      narrow_gradient(dims.rows() * dims.channels),
      wide_gradient(dims.rows() * dims.inner) {}

template <class Layers>
std::int64_t Gpt2Workspace<Layers>::bytes() const {
  return layers.bytes() +
         static_cast<std::int64_t>(narrow_gradient.bytes() + wide_gradient.bytes());
}

template <class Layers>
Gpt2Block<Layers>::Gpt2Block(const Dims& dims, Products& matmul, Workspace& workspace)
    : workspace_(workspace),
      layers_(workspace.layers),
      channels_(dims.channels),
      ln_1_(layers_.make_norm()),
      ln_2_(layers_.make_norm()),
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
template <class Layers>
void Gpt2Block<Layers>::intermediates(int layer, const T* in, const Values& v) {
  ln_1_.forward(in, v.ln_1, normed_1_.data());
  qkv_linear_.forward(normed_1_.data(), v.qkv, qkv_.data());
  layers_.attend(split<const T>(qkv_.data()), attended_.data(), log_sums_.data());
  layers_.add_product(projection_, attended_.data(), v.projection, in, middle_.data());
  ln_2_.forward(middle_.data(), v.ln_2, normed_2_.data());
  layers_.product_and_gelu(expand_, normed_2_.data(), v.expand, expanded_.data(), activated_.data(),
                           expanded_.size());
  held_layer_ = layer;
}

template <class Layers>
void Gpt2Block<Layers>::forward(int layer, const T* in, const ParameterValues<T>& parameters,
                                T* out) {
  const Values values(parameters);
  intermediates(layer, in, values);
  layers_.add_product(contract_, activated_.data(), values.contract, middle_.data(), out);
}

template <class Layers>
void Gpt2Block<Layers>::backward(int layer, const T* in, ParameterGradients<T>& parameters,
                                 T* gradient) {
  const Values values(parameters);
  const Gradients gradients(parameters);
  if (held_layer_ != layer) intermediates(layer, in, values);
  backward_mlp(values, gradients, gradient);
  backward_attention(in, values, gradients, gradient);
}

template <class Layers>
void Gpt2Block<Layers>::backward_mlp(const Values& v, const Gradients& g, T* gradient) {
  T* wide = workspace_.wide_gradient.data();
  layers_.parameter_gradients(contract_, activated_.data(), gradient, g.contract);
  layers_.gelu_input_gradient(contract_, gradient, v.contract.weight, expanded_.data(), wide,
                              expanded_.size());
  layers_.parameter_gradients(expand_, normed_2_.data(), wide, g.expand);
  expand_.input_gradient(wide, v.expand.weight, workspace_.narrow_gradient.data());
  layers_.norm_backward(ln_2_, workspace_.narrow_gradient.data(), middle_.data(), v.ln_2, gradient,
                        g.ln_2);
}

template <class Layers>
void Gpt2Block<Layers>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                           T* gradient) {
  T* narrow = workspace_.narrow_gradient.data();
  T* dqkv = workspace_.wide_gradient.data();
  layers_.parameter_gradients(projection_, attended_.data(), gradient, g.projection);
  projection_.input_gradient(gradient, v.projection.weight, narrow);
  layers_.attend_backward(
      {split<const T>(qkv_.data()), attended_.data(), narrow, log_sums_.data(), split<T>(dqkv)});
  layers_.parameter_gradients(qkv_linear_, normed_1_.data(), dqkv, g.qkv);
  qkv_linear_.input_gradient(dqkv, v.qkv.weight, narrow);
  layers_.norm_backward(ln_1_, narrow, in, v.ln_1, gradient, g.ln_1);
}

template <class Layers>
std::int64_t Gpt2Block<Layers>::bytes() const {
  std::size_t bytes = log_sums_.bytes();
  for (const Buffer* buffer :
       {&normed_1_, &qkv_, &attended_, &middle_, &normed_2_, &expanded_, &activated_})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes) + ln_1_.bytes() + ln_2_.bytes();
}

}  // namespace gpt
