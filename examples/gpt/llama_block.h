// A block of Llama: pre-RMSNorm, rotary embedding of queries and keys, grouped-query attention,
// SwiGLU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "examples/gpt/attention.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/linear.h"
#include "examples/gpt/model_config.h"
#include "examples/gpt/norm.h"
#include "examples/gpt/parameters.h"

namespace gpt {

template <class Layers>
struct LlamaWorkspace {
  using Products = typename Layers::Products;
  using Buffer = typename Layers::template Buffer<typename Layers::T>;

  LlamaWorkspace(const Dims& dims, Products& matmul, const LlamaConfig& config);
  std::int64_t bytes() const;

  Layers layers;
  typename Layers::Rope rope;
  Buffer narrow_gradient;                  // [rows, C]
  Buffer dattended, dquery, dkey, dvalue;  // [rows, channels of all heads]
  Buffer gate_gradient, up_gradient;       // [rows, inner]
};

// As BlocksOf wants it. Layers: layers.h, or a GPU's.
template <class Layers>
class LlamaBlock {
 public:
  using T = typename Layers::T;
  using Products = typename Layers::Products;
  using Workspace = LlamaWorkspace<Layers>;

  // The workspace outlives the block.
  LlamaBlock(const Dims& dims, Products& matmul, Workspace& workspace, const LlamaConfig& config);

  void forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out);
  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient);
  std::int64_t bytes() const;

 private:
  using Buffer = typename Layers::template Buffer<T>;

  struct Values;
  struct Gradients;

  // `shares_input`: its input has another product's gradient already.
  static LinearShape shape(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias,
                           bool shares_input = false) {
    return {rows, in, out, WeightLayout::out_in, bias, shares_input};
  }
  // `norm` and `linear` make a part of the parameters' names; a linear's name has no ".weight".
  template <class Parts, class NormOf, class LinearOf>
  Parts parts_of(const NormOf& norm, const LinearOf& linear) const;
  Values values_of(const ParameterValues<T>& parameters) const;
  Gradients gradients_of(ParameterGradients<T>& parameters) const;
  void intermediates(int layer, const T* in, const Values& values);
  void attend(const Values& values);
  void backward_mlp(const Values& values, const Gradients& gradients, T* gradient);
  void backward_attention(const T* in, const Values& values, const Gradients& gradients,
                          T* gradient);
  Qkv<const T> qkv() const;

  Dims dims_;
  Workspace& workspace_;
  Layers& layers_;
  bool query_key_value_bias_, output_bias_, mlp_bias_;
  typename Layers::Norm norm_1_, norm_2_;
  typename Layers::Linear query_linear_, key_linear_, value_linear_, output_, gate_linear_,
      up_linear_, down_;
  Buffer normed_1_, query_, key_, value_, attended_, middle_, normed_2_, gate_, up_, activated_;
  typename Layers::template Buffer<typename Layers::Acc> log_sums_;
  int held_layer_ = -1;
};

template <class Layers>
struct LlamaBlock<Layers>::Values {
  NormValues<T> norm_1, norm_2;
  LinearValues<T> query, key, value, output, gate, up, down;
};

template <class Layers>
struct LlamaBlock<Layers>::Gradients {
  NormGradients<T> norm_1, norm_2;
  LinearGradients<T> query, key, value, output, gate, up, down;
};

template <class Layers>
template <class Parts, class NormOf, class LinearOf>
Parts LlamaBlock<Layers>::parts_of(const NormOf& norm, const LinearOf& linear) const {
  return {.norm_1 = norm("input_layernorm.weight"),
          .norm_2 = norm("post_attention_layernorm.weight"),
          .query = linear("self_attn.q_proj", query_key_value_bias_),
          .key = linear("self_attn.k_proj", query_key_value_bias_),
          .value = linear("self_attn.v_proj", query_key_value_bias_),
          .output = linear("self_attn.o_proj", output_bias_),
          .gate = linear("mlp.gate_proj", mlp_bias_),
          .up = linear("mlp.up_proj", mlp_bias_),
          .down = linear("mlp.down_proj", mlp_bias_)};
}

template <class Layers>
typename LlamaBlock<Layers>::Values LlamaBlock<Layers>::values_of(
    const ParameterValues<T>& of) const {
  return parts_of<Values>(
      [&](const char* name) -> NormValues<T> {
        return {of.value(name), nullptr};
      },
      [&](const std::string& name, bool bias) -> LinearValues<T> {
        return {of.value(name + ".weight"), bias ? of.value(name + ".bias") : nullptr};
      });
}

template <class Layers>
typename LlamaBlock<Layers>::Gradients LlamaBlock<Layers>::gradients_of(
    ParameterGradients<T>& of) const {
  return parts_of<Gradients>(
      [&](const char* name) -> NormGradients<T> {
        return {of.grad(name), nullptr};
      },
      [&](const std::string& name, bool bias) -> LinearGradients<T> {
        return {of.target(name + ".weight"), bias ? of.grad(name + ".bias") : nullptr};
      });
}

template <class Layers>
LlamaWorkspace<Layers>::LlamaWorkspace(const Dims& dims, Products& matmul,
                                       const LlamaConfig& config)
    : layers(dims, matmul, std::max({2 * dims.channels, dims.query_channels(), dims.inner}),
             {dims.query_channels(), dims.key_channels()}),
      rope(layers.make_rope(config.rope)),
      narrow_gradient(dims.rows() * dims.channels),
      dattended(dims.rows() * dims.query_channels()),
      dquery(dims.rows() * dims.query_channels()),
      dkey(dims.rows() * dims.key_channels()),
      dvalue(dims.rows() * dims.key_channels()),
      gate_gradient(dims.rows() * dims.inner),
      up_gradient(dims.rows() * dims.inner) {}

template <class Layers>
std::int64_t LlamaWorkspace<Layers>::bytes() const {
  std::int64_t bytes = layers.bytes() + rope.bytes();
  for (const Buffer* buffer :
       {&narrow_gradient, &dattended, &dquery, &dkey, &dvalue, &gate_gradient, &up_gradient})
    bytes += static_cast<std::int64_t>(buffer->bytes());
  return bytes;
}

template <class Layers>
LlamaBlock<Layers>::LlamaBlock(const Dims& dims, Products& matmul, Workspace& workspace,
                               const LlamaConfig& config)
    : dims_(dims),
      workspace_(workspace),
      layers_(workspace.layers),
      query_key_value_bias_(config.query_key_value_bias),
      output_bias_(config.output_bias),
      mlp_bias_(config.mlp_bias),
      norm_1_(layers_.make_norm()),
      norm_2_(layers_.make_norm()),
      query_linear_(shape(dims.rows(), dims.channels, dims.query_channels(), query_key_value_bias_),
                    matmul),
      key_linear_(
          shape(dims.rows(), dims.channels, dims.key_channels(), query_key_value_bias_, true),
          matmul),
      value_linear_(
          shape(dims.rows(), dims.channels, dims.key_channels(), query_key_value_bias_, true),
          matmul),
      output_(shape(dims.rows(), dims.query_channels(), dims.channels, output_bias_), matmul),
      gate_linear_(shape(dims.rows(), dims.channels, dims.inner, mlp_bias_), matmul),
      up_linear_(shape(dims.rows(), dims.channels, dims.inner, mlp_bias_, true), matmul),
      down_(shape(dims.rows(), dims.inner, dims.channels, mlp_bias_), matmul),
      normed_1_(dims.rows() * dims.channels),
      query_(dims.rows() * dims.query_channels()),
      key_(dims.rows() * dims.key_channels()),
      value_(dims.rows() * dims.key_channels()),
      attended_(dims.rows() * dims.query_channels()),
      middle_(dims.rows() * dims.channels),
      normed_2_(dims.rows() * dims.channels),
      gate_(dims.rows() * dims.inner),
      up_(dims.rows() * dims.inner),
      activated_(dims.rows() * dims.inner),
      log_sums_(dims.batch * dims.heads * dims.sequence) {}

template <class Layers>
Qkv<const typename Layers::T> LlamaBlock<Layers>::qkv() const {
  return {query_.data(), key_.data(), value_.data(), dims_.query_channels(), dims_.key_channels()};
}

template <class Layers>
void LlamaBlock<Layers>::attend(const Values& v) {
  query_linear_.forward(normed_1_.data(), v.query, query_.data());
  key_linear_.forward(normed_1_.data(), v.key, key_.data());
  value_linear_.forward(normed_1_.data(), v.value, value_.data());
  layers_.turn(workspace_.rope, query_.data(), dims_.heads);
  layers_.turn(workspace_.rope, key_.data(), dims_.key_heads);
  layers_.attend(qkv(), attended_.data(), log_sums_.data());
}

// All that backward() reads: everything but the last product.
template <class Layers>
void LlamaBlock<Layers>::intermediates(int layer, const T* in, const Values& v) {
  norm_1_.forward(in, v.norm_1, normed_1_.data());
  attend(v);
  layers_.add_product(output_, attended_.data(), v.output, in, middle_.data());
  norm_2_.forward(middle_.data(), v.norm_2, normed_2_.data());
  gate_linear_.forward(normed_2_.data(), v.gate, gate_.data());
  up_linear_.forward(normed_2_.data(), v.up, up_.data());
  layers_.swiglu_forward({gate_.data(), up_.data(), activated_.data()}, gate_.size());
  held_layer_ = layer;
}

template <class Layers>
void LlamaBlock<Layers>::forward(int layer, const T* in, const ParameterValues<T>& parameters,
                                 T* out) {
  const Values values = values_of(parameters);
  intermediates(layer, in, values);
  layers_.add_product(down_, activated_.data(), values.down, middle_.data(), out);
}

template <class Layers>
void LlamaBlock<Layers>::backward(int layer, const T* in, ParameterGradients<T>& parameters,
                                  T* gradient) {
  const Values values = values_of(parameters);
  const Gradients gradients = gradients_of(parameters);
  if (held_layer_ != layer) intermediates(layer, in, values);
  backward_mlp(values, gradients, gradient);
  backward_attention(in, values, gradients, gradient);
}

template <class Layers>
void LlamaBlock<Layers>::backward_mlp(const Values& v, const Gradients& g, T* gradient) {
  T *dgate = workspace_.gate_gradient.data(), *dup = workspace_.up_gradient.data(),
    *narrow = workspace_.narrow_gradient.data();
  layers_.parameter_gradients(down_, activated_.data(), gradient, g.down);
  down_.input_gradient(gradient, v.down.weight, dup);
  layers_.swiglu_backward({gate_.data(), up_.data(), dup, dgate}, gate_.size());
  layers_.parameter_gradients(gate_linear_, normed_2_.data(), dgate, g.gate);
  layers_.parameter_gradients(up_linear_, normed_2_.data(), dup, g.up);
  gate_linear_.input_gradient(dgate, v.gate.weight, narrow);
  up_linear_.input_gradient(dup, v.up.weight, narrow);
  layers_.norm_backward(norm_2_, narrow, middle_.data(), v.norm_2, gradient, g.norm_2);
}

template <class Layers>
void LlamaBlock<Layers>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                            T* gradient) {
  Workspace& w = workspace_;
  T *dquery = w.dquery.data(), *dkey = w.dkey.data(), *dvalue = w.dvalue.data();
  layers_.parameter_gradients(output_, attended_.data(), gradient, g.output);
  output_.input_gradient(gradient, v.output.weight, w.dattended.data());
  layers_.attend_backward({qkv(),
                           attended_.data(),
                           w.dattended.data(),
                           log_sums_.data(),
                           {dquery, dkey, dvalue, dims_.query_channels(), dims_.key_channels()}});
  layers_.turn_back(w.rope, dquery, dims_.heads);
  layers_.turn_back(w.rope, dkey, dims_.key_heads);
  layers_.parameter_gradients(query_linear_, normed_1_.data(), dquery, g.query);
  layers_.parameter_gradients(key_linear_, normed_1_.data(), dkey, g.key);
  layers_.parameter_gradients(value_linear_, normed_1_.data(), dvalue, g.value);
  T* narrow = w.narrow_gradient.data();
  query_linear_.input_gradient(dquery, v.query.weight, narrow);
  key_linear_.input_gradient(dkey, v.key.weight, narrow);
  value_linear_.input_gradient(dvalue, v.value.weight, narrow);
  layers_.norm_backward(norm_1_, narrow, in, v.norm_1, gradient, g.norm_1);
}

template <class Layers>
std::int64_t LlamaBlock<Layers>::bytes() const {
  std::size_t bytes = log_sums_.bytes();
  for (const Buffer* buffer : {&normed_1_, &query_, &key_, &value_, &attended_, &middle_,
                               &normed_2_, &gate_, &up_, &activated_})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes) + norm_1_.bytes() + norm_2_.bytes();
}

}  // namespace gpt
