#include "examples/gpt/cuda/llama_block.h"

#include <algorithm>
#include <string>

#include "examples/gpt/rope.h"

namespace gpt::cuda {
namespace {

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
LlamaWorkspace<T>::LlamaWorkspace(const Dims& dims, DeviceMatmul& matmul, const LlamaConfig& config)
    : cosines(dims.sequence * dims.head_channels / 2),
      sines(cosines.size()),
      narrow_gradient(dims.rows() * dims.channels),
      dattended(dims.rows() * dims.query_channels()),
      dquery(dims.rows() * dims.query_channels()),
      dkey(dims.rows() * dims.key_channels()),
      dvalue(dims.rows() * dims.key_channels()),
      gate_gradient(dims.rows() * dims.inner),
      up_gradient(dims.rows() * dims.inner),
      deltas(dims.batch * dims.heads * dims.sequence),
      sums(column_scratch(dims.rows(),
                          std::max({2 * dims.channels, dims.query_channels(), dims.inner}))) {
  const RopeTable<float> table(config.rope, dims.sequence, dims.head_channels);
  cosines.fill(table.cosines.data(), matmul.stream());
  sines.fill(table.sines.data(), matmul.stream());
}

template <class T>
std::int64_t LlamaWorkspace<T>::bytes() const {
  std::size_t bytes = cosines.bytes() + sines.bytes() + deltas.bytes() + sums.bytes();
  for (const DeviceBuffer<T>* buffer :
       {&narrow_gradient, &dattended, &dquery, &dkey, &dvalue, &gate_gradient, &up_gradient})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes);
}

template <class T>
LlamaBlock<T>::LlamaBlock(const Dims& dims, DeviceMatmul& matmul, Workspace& workspace,
                          const LlamaConfig& config)
    : dims_(dims),
      stream_(matmul.stream()),
      workspace_(workspace),
      query_key_value_bias_(config.query_key_value_bias),
      output_bias_(config.output_bias),
      mlp_bias_(config.mlp_bias),
      norm_1_(dims, stream_),
      norm_2_(dims, stream_),
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
void LlamaBlock<T>::turn(T* data, std::int64_t heads, float direction) {
  rotate(Rotation<T>{data, workspace_.cosines.data(), workspace_.sines.data(), dims_.sequence,
                     heads, dims_.head_channels, direction},
         dims_.rows(), stream_);
}

template <class T>
void LlamaBlock<T>::attend(const Values& v) {
  query_linear_.forward(normed_1_.data(), v.query, query_.data());
  key_linear_.forward(normed_1_.data(), v.key, key_.data());
  value_linear_.forward(normed_1_.data(), v.value, value_.data());
  turn(query_.data(), dims_.heads, 1);
  turn(key_.data(), dims_.key_heads, 1);
  attention_forward(AttentionForward<T>{dims_, qkv(), attended_.data(), log_sums_.data()}, stream_);
}

// All that backward() reads: everything but the last product. Residuals are the products' addends.
template <class T>
void LlamaBlock<T>::intermediates(int layer, const T* in, const Values& v) {
  norm_1_.forward(in, v.norm_1, normed_1_.data());
  attend(v);
  output_.forward(attended_.data(), v.output, middle_.data(), in);
  norm_2_.forward(middle_.data(), v.norm_2, normed_2_.data());
  gate_linear_.forward(normed_2_.data(), v.gate, gate_.data());
  up_linear_.forward(normed_2_.data(), v.up, up_.data());
  swiglu_forward(SwigluForward<T>{gate_.data(), up_.data(), activated_.data()}, gate_.size(),
                 stream_);
  held_layer_ = layer;
}

template <class T>
void LlamaBlock<T>::forward(int layer, const T* in, const ParameterValues<T>& parameters, T* out) {
  const Values values = values_of(parameters);
  intermediates(layer, in, values);
  down_.forward(activated_.data(), values.down, out, middle_.data());
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
  float* sums = workspace_.sums.data();
  down_.parameter_gradients(activated_.data(), gradient, g.down, sums);
  down_.input_gradient(gradient, v.down.weight, dup);
  swiglu_backward(SwigluBackward<T>{gate_.data(), up_.data(), dup, dgate}, gate_.size(), stream_);
  gate_linear_.parameter_gradients(normed_2_.data(), dgate, g.gate, sums);
  up_linear_.parameter_gradients(normed_2_.data(), dup, g.up, sums);
  gate_linear_.input_gradient(dgate, v.gate.weight, narrow);
  up_linear_.input_gradient(dup, v.up.weight, narrow);
  norm_2_.backward(narrow, middle_.data(), v.norm_2, gradient, g.norm_2, sums);
}

template <class T>
void LlamaBlock<T>::backward_attention(const T* in, const Values& v, const Gradients& g,
                                       T* gradient) {
  Workspace& w = workspace_;
  T *dquery = w.dquery.data(), *dkey = w.dkey.data(), *dvalue = w.dvalue.data();
  float* sums = w.sums.data();
  output_.parameter_gradients(attended_.data(), gradient, g.output, sums);
  output_.input_gradient(gradient, v.output.weight, w.dattended.data());
  attention_backward(
      AttentionBackward<T>{dims_,
                           qkv(),
                           attended_.data(),
                           w.dattended.data(),
                           log_sums_.data(),
                           w.deltas.data(),
                           {dquery, dkey, dvalue, dims_.query_channels(), dims_.key_channels()}},
      stream_);
  turn(dquery, dims_.heads, -1);
  turn(dkey, dims_.key_heads, -1);
  query_linear_.parameter_gradients(normed_1_.data(), dquery, g.query, sums);
  key_linear_.parameter_gradients(normed_1_.data(), dkey, g.key, sums);
  value_linear_.parameter_gradients(normed_1_.data(), dvalue, g.value, sums);
  T* narrow = w.narrow_gradient.data();
  query_linear_.input_gradient(dquery, v.query.weight, narrow);
  key_linear_.input_gradient(dkey, v.key.weight, narrow);
  value_linear_.input_gradient(dvalue, v.value.weight, narrow);
  norm_1_.backward(narrow, in, v.norm_1, gradient, g.norm_1, sums);
}

template <class T>
std::int64_t LlamaBlock<T>::bytes() const {
  std::size_t bytes = log_sums_.bytes();
  for (const DeviceBuffer<T>* buffer : {&normed_1_, &query_, &key_, &value_, &attended_, &middle_,
                                        &normed_2_, &gate_, &up_, &activated_})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes) + norm_1_.bytes() + norm_2_.bytes();
}

#define GPT_INSTANTIATE(T)           \
  template struct LlamaWorkspace<T>; \
  template class LlamaBlock<T>;
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
