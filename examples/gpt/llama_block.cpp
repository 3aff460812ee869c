#include "examples/gpt/llama_block.h"

#include <algorithm>
#include <string>

namespace gpt {
namespace {

constexpr std::int64_t element_grain = 1024;

// `shares_input`: its input has another product's gradient already.
LinearShape linear(std::int64_t rows, std::int64_t in, std::int64_t out, bool bias,
                   bool shares_input = false) {
  return {rows, in, out, WeightLayout::out_in, bias, shares_input};
}

template <class T>
LinearValues<T> linear_values(const ParameterValues<T>& of, const std::string& name, bool bias) {
  return {of.value(name + ".weight"), bias ? of.value(name + ".bias") : nullptr};
}

template <class T>
LinearGradients<T> linear_gradients(ParameterGradients<T>& of, const std::string& name, bool bias) {
  return {of.target(name + ".weight"), bias ? of.grad(name + ".bias") : nullptr};
}

}  // namespace

template <class T>
struct LlamaBlock<T>::Values {
  NormValues<T> norm_1, norm_2;
  LinearValues<T> query, key, value, output, gate, up, down;
};

template <class T>
struct LlamaBlock<T>::Gradients {
  NormGradients<T> norm_1, norm_2;
  LinearGradients<T> query, key, value, output, gate, up, down;
};

template <class T>
typename LlamaBlock<T>::Values LlamaBlock<T>::values_of(const ParameterValues<T>& of) const {
  return {.norm_1 = {of.value("input_layernorm.weight"), nullptr},
          .norm_2 = {of.value("post_attention_layernorm.weight"), nullptr},
          .query = linear_values(of, "self_attn.q_proj", query_key_value_bias_),
          .key = linear_values(of, "self_attn.k_proj", query_key_value_bias_),
          .value = linear_values(of, "self_attn.v_proj", query_key_value_bias_),
          .output = linear_values(of, "self_attn.o_proj", output_bias_),
          .gate = linear_values(of, "mlp.gate_proj", mlp_bias_),
          .up = linear_values(of, "mlp.up_proj", mlp_bias_),
          .down = linear_values(of, "mlp.down_proj", mlp_bias_)};
}

template <class T>
typename LlamaBlock<T>::Gradients LlamaBlock<T>::gradients_of(ParameterGradients<T>& of) const {
  return {.norm_1 = {of.grad("input_layernorm.weight"), nullptr},
          .norm_2 = {of.grad("post_attention_layernorm.weight"), nullptr},
          .query = linear_gradients(of, "self_attn.q_proj", query_key_value_bias_),
          .key = linear_gradients(of, "self_attn.k_proj", query_key_value_bias_),
          .value = linear_gradients(of, "self_attn.v_proj", query_key_value_bias_),
          .output = linear_gradients(of, "self_attn.o_proj", output_bias_),
          .gate = linear_gradients(of, "mlp.gate_proj", mlp_bias_),
          .up = linear_gradients(of, "mlp.up_proj", mlp_bias_),
          .down = linear_gradients(of, "mlp.down_proj", mlp_bias_)};
}

template <class T>
LlamaWorkspace<T>::LlamaWorkspace(const Dims& dims, Matmul& matmul, const LlamaConfig& config)
    : attention(dims, matmul),
      rope(config.rope, dims.sequence, dims.head_channels),
      narrow_gradient(dims.rows() * dims.channels),
      dattended(dims.rows() * dims.query_channels()),
      dquery(dims.rows() * dims.query_channels()),
      dkey(dims.rows() * dims.key_channels()),
      dvalue(dims.rows() * dims.key_channels()),
      gate_gradient(dims.rows() * dims.inner),
      up_gradient(dims.rows() * dims.inner) {}

template <class T>
std::int64_t LlamaWorkspace<T>::bytes() const {
  std::int64_t bytes = attention.bytes() + rope.bytes();
  for (const Buffer<T>* buffer :
       {&narrow_gradient, &dattended, &dquery, &dkey, &dvalue, &gate_gradient, &up_gradient})
    bytes += static_cast<std::int64_t>(buffer->bytes());
  return bytes;
}

template <class T>
LlamaBlock<T>::LlamaBlock(const Dims& dims, Matmul& matmul, Workspace& workspace,
                          const LlamaConfig& config)
    : dims_(dims),
      pool_(matmul.pool()),
      workspace_(workspace),
      query_key_value_bias_(config.query_key_value_bias),
      output_bias_(config.output_bias),
      mlp_bias_(config.mlp_bias),
      norm_1_(dims, matmul.pool()),
      norm_2_(dims, matmul.pool()),
      query_linear_(
          linear(dims.rows(), dims.channels, dims.query_channels(), query_key_value_bias_), matmul),
      key_linear_(
          linear(dims.rows(), dims.channels, dims.key_channels(), query_key_value_bias_, true),
          matmul),
      value_linear_(
          linear(dims.rows(), dims.channels, dims.key_channels(), query_key_value_bias_, true),
          matmul),
      output_(linear(dims.rows(), dims.query_channels(), dims.channels, output_bias_), matmul),
      gate_linear_(linear(dims.rows(), dims.channels, dims.inner, mlp_bias_), matmul),
      up_linear_(linear(dims.rows(), dims.channels, dims.inner, mlp_bias_, true), matmul),
      down_(linear(dims.rows(), dims.inner, dims.channels, mlp_bias_), matmul),
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

template <class T>
Qkv<const T> LlamaBlock<T>::qkv() const {
  return {query_.data(), key_.data(), value_.data(), dims_.query_channels(), dims_.key_channels()};
}

template <class T>
void LlamaBlock<T>::attend(const Values& v) {
  using Direction = typename Rope<T>::Direction;
  query_linear_.forward(normed_1_.data(), v.query, query_.data());
  key_linear_.forward(normed_1_.data(), v.key, key_.data());
  value_linear_.forward(normed_1_.data(), v.value, value_.data());
  const Rope<T>& rope = workspace_.rope;
  rope.rotate({query_.data(), dims_.rows(), dims_.heads}, Direction::forward, pool_);
  rope.rotate({key_.data(), dims_.rows(), dims_.key_heads}, Direction::forward, pool_);
  workspace_.attention.forward(qkv(), attended_.data(), log_sums_.data());
}

// All that backward() reads: everything but the last product.
template <class T>
void LlamaBlock<T>::intermediates(int layer, const T* in, const Values& v) {
  norm_1_.forward(in, v.norm_1, normed_1_.data());
  attend(v);
  std::copy_n(in, middle_.size(), middle_.data());
  output_.forward(attended_.data(), v.output, middle_.data(), true);
  norm_2_.forward(middle_.data(), v.norm_2, normed_2_.data());
  gate_linear_.forward(normed_2_.data(), v.gate, gate_.data());
  up_linear_.forward(normed_2_.data(), v.up, up_.data());
  const SwigluForward<T> call{gate_.data(), up_.data(), activated_.data()};
  pool_.for_ranges(gate_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().swiglu_forward(call, {begin, end});
  });
  held_layer_ = layer;
}

template <class T>
void LlamaBlock<T>::forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out) {
  const Values values = values_of(parameters);
  intermediates(layer, in, values);
  std::copy_n(middle_.data(), middle_.size(), out);
  down_.forward(activated_.data(), values.down, out, true);
}

template <class T>
void LlamaBlock<T>::backward(int layer, const T* in, ParameterGradients<T>& parameters,
                             T* gradient) {
  const Values values = values_of(parameters);
  const Gradients gradients = gradients_of(parameters);
  if (held_layer_ != layer) intermediates(layer, in, values);
  backward_mlp(values, gradients, gradient);
  backward_attention(in, values, gradients, gradient);
}

template <class T>
void LlamaBlock<T>::backward_mlp(const Values& v, const Gradients& g, T* gradient) {
  T *dgate = workspace_.gate_gradient.data(), *dup = workspace_.up_gradient.data(),
    *narrow = workspace_.narrow_gradient.data();
  down_.parameter_gradients(activated_.data(), gradient, g.down);
  down_.input_gradient(gradient, v.down.weight, dup);
  const SwigluBackward<T> call{gate_.data(), up_.data(), dup, dgate};
  pool_.for_ranges(gate_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().swiglu_backward(call, {begin, end});
  });
  gate_linear_.parameter_gradients(normed_2_.data(), dgate, g.gate);
  up_linear_.parameter_gradients(normed_2_.data(), dup, g.up);
  gate_linear_.input_gradient(dgate, v.gate.weight, narrow);
  up_linear_.input_gradient(dup, v.up.weight, narrow);
  norm_2_.backward(narrow, middle_.data(), v.norm_2, gradient, g.norm_2);
}

template <class T>
void LlamaBlock<T>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                       T* gradient) {
  using Direction = typename Rope<T>::Direction;
  Workspace& w = workspace_;
  T *dquery = w.dquery.data(), *dkey = w.dkey.data(), *dvalue = w.dvalue.data();
  output_.parameter_gradients(attended_.data(), gradient, g.output);
  output_.input_gradient(gradient, v.output.weight, w.dattended.data());
  w.attention.backward({qkv(),
                        attended_.data(),
                        w.dattended.data(),
                        log_sums_.data(),
                        {dquery, dkey, dvalue, dims_.query_channels(), dims_.key_channels()}});
  w.rope.rotate({dquery, dims_.rows(), dims_.heads}, Direction::back, pool_);
  w.rope.rotate({dkey, dims_.rows(), dims_.key_heads}, Direction::back, pool_);
  query_linear_.parameter_gradients(normed_1_.data(), dquery, g.query);
  key_linear_.parameter_gradients(normed_1_.data(), dkey, g.key);
  value_linear_.parameter_gradients(normed_1_.data(), dvalue, g.value);
  T* narrow = w.narrow_gradient.data();
  query_linear_.input_gradient(dquery, v.query.weight, narrow);
  key_linear_.input_gradient(dkey, v.key.weight, narrow);
  value_linear_.input_gradient(dvalue, v.value.weight, narrow);
  norm_1_.backward(narrow, in, v.norm_1, gradient, g.norm_1);
}

template <class T>
std::int64_t LlamaBlock<T>::bytes() const {
  std::int64_t elements = 0;
  for (const Buffer<T>* buffer : {&normed_1_, &query_, &key_, &value_, &attended_, &middle_,
                                  &normed_2_, &gate_, &up_, &activated_})
    elements += buffer->size();
  return elements * static_cast<std::int64_t>(sizeof(T)) +
         static_cast<std::int64_t>(log_sums_.bytes()) + norm_1_.bytes() + norm_2_.bytes();
}

#define GPT_INSTANTIATE(T)           \
  template struct LlamaWorkspace<T>; \
  template class LlamaBlock<T>;
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
GPT_INSTANTIATE(double)
#undef GPT_INSTANTIATE

}  // namespace gpt
