#include "examples/gpt/block.h"

#include <algorithm>

namespace gpt {
namespace {

constexpr std::int64_t element_grain = 1024;

}  // namespace

template <class T>
BlockWorkspace<T>::BlockWorkspace(const Dims& dims, Matmul& matmul)
    : attention(dims, matmul),
      narrow_gradient(dims.rows() * dims.channels),
      wide_gradient(dims.rows() * dims.channels * 4) {}

template <class T>
std::int64_t BlockWorkspace<T>::bytes() const {
  return attention.bytes() +
         static_cast<std::int64_t>(narrow_gradient.bytes() + wide_gradient.bytes());
}

template <class T>
Block<T>::Block(const Dims& dims, Matmul& matmul, BlockWorkspace<T>& workspace)
    : pool_(matmul.pool()),
      kernels_(kernels<T>()),
      workspace_(workspace),
      ln_1_(dims.rows(), dims.channels, dims.epsilon, matmul.pool()),
      ln_2_(dims.rows(), dims.channels, dims.epsilon, matmul.pool()),
      qkv_linear_(dims.rows(), dims.channels, 3 * dims.channels, matmul),
      projection_(dims.rows(), dims.channels, dims.channels, matmul),
      expand_(dims.rows(), dims.channels, 4 * dims.channels, matmul),
      contract_(dims.rows(), 4 * dims.channels, dims.channels, matmul),
      normed_1_(dims.rows() * dims.channels),
      qkv_(dims.rows() * dims.channels * 3),
      attended_(dims.rows() * dims.channels),
      middle_(dims.rows() * dims.channels),
      normed_2_(dims.rows() * dims.channels),
      expanded_(dims.rows() * dims.channels * 4),
      activated_(dims.rows() * dims.channels * 4),
      log_sums_(dims.batch * dims.heads * dims.sequence) {}

// All that backward() reads: everything but the last product.
template <class T>
void Block<T>::intermediates(int layer, const T* in, const BlockValues<T>& v) {
  ln_1_.forward(in, v.ln_1, normed_1_.data());
  qkv_linear_.forward(normed_1_.data(), v.qkv.weight, v.qkv.bias, qkv_.data());
  workspace_.attention.forward(qkv_.data(), attended_.data(), log_sums_.data());
  std::copy_n(in, middle_.size(), middle_.data());
  projection_.forward(attended_.data(), v.projection.weight, v.projection.bias, middle_.data(),
                      true);
  ln_2_.forward(middle_.data(), v.ln_2, normed_2_.data());
  expand_.forward(normed_2_.data(), v.expand.weight, v.expand.bias, expanded_.data());
  pool_.for_ranges(expanded_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels_.gelu_forward(expanded_.data(), activated_.data(), {begin, end});
  });
  held_layer_ = layer;
}

template <class T>
void Block<T>::forward(int layer, const T* in, const BlockValues<T>& values, T* out) {
  intermediates(layer, in, values);
  std::copy_n(middle_.data(), middle_.size(), out);
  contract_.forward(activated_.data(), values.contract.weight, values.contract.bias, out, true);
}

template <class T>
void Block<T>::backward(int layer, const T* in, const BlockValues<T>& values,
                        const BlockGradients<T>& gradients, T* gradient) {
  if (held_layer_ != layer) intermediates(layer, in, values);
  backward_mlp(values, gradients, gradient);
  backward_attention(in, values, gradients, gradient);
}

template <class T>
void Block<T>::backward_mlp(const BlockValues<T>& v, const BlockGradients<T>& g, T* gradient) {
  T* wide = workspace_.wide_gradient.data();
  contract_.parameter_gradients(activated_.data(), gradient, g.contract.weight, g.contract.bias);
  contract_.input_gradient(gradient, v.contract.weight, wide);
  pool_.for_ranges(expanded_.size(), element_grain, [&](std::int64_t begin, std::int64_t end) {
    kernels_.gelu_backward(expanded_.data(), wide, {begin, end});
  });
  expand_.parameter_gradients(normed_2_.data(), wide, g.expand.weight, g.expand.bias);
  expand_.input_gradient(wide, v.expand.weight, workspace_.narrow_gradient.data());
  ln_2_.backward(workspace_.narrow_gradient.data(), middle_.data(), v.ln_2, gradient, g.ln_2);
}

template <class T>
void Block<T>::backward_attention(const T* in, const BlockValues<T>& v, const BlockGradients<T>& g,
                                  T* gradient) {
  T* narrow = workspace_.narrow_gradient.data();
  T* dqkv = workspace_.wide_gradient.data();
  projection_.parameter_gradients(attended_.data(), gradient, g.projection.weight,
                                  g.projection.bias);
  projection_.input_gradient(gradient, v.projection.weight, narrow);
  workspace_.attention.backward({qkv_.data(), attended_.data(), narrow, log_sums_.data(), dqkv});
  qkv_linear_.parameter_gradients(normed_1_.data(), dqkv, g.qkv.weight, g.qkv.bias);
  qkv_linear_.input_gradient(dqkv, v.qkv.weight, narrow);
  ln_1_.backward(narrow, in, v.ln_1, gradient, g.ln_1);
}

template <class T>
std::int64_t Block<T>::bytes() const {
  std::int64_t elements = 0;
  for (const Buffer<T>* buffer :
       {&normed_1_, &qkv_, &attended_, &middle_, &normed_2_, &expanded_, &activated_})
    elements += buffer->size();
  return elements * static_cast<std::int64_t>(sizeof(T)) +
         static_cast<std::int64_t>(log_sums_.bytes()) + ln_1_.bytes() + ln_2_.bytes();
}

template struct BlockWorkspace<float>;
template struct BlockWorkspace<zero::bf16>;
template struct BlockWorkspace<zero::fp16>;
template struct BlockWorkspace<double>;
template class Block<float>;
template class Block<zero::bf16>;
template class Block<zero::fp16>;
template class Block<double>;

}  // namespace gpt
