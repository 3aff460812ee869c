#include "examples/gpt/cpu/model.h"

#include <algorithm>
#include <numeric>

#include "examples/gpt/cpu/layers.h"
#include "examples/gpt/cpu/model_parts.h"

namespace gpt {

template <class T>
Model<T>::Model(const ModelConfig& config, const Dims& dims, zero::ThreadPool& pool,
                const HeldActivations& held)
    : names_(names_of(config)),
      dims_(dims),
      layers_(static_cast<int>(config.layers)),
      pool_(pool),
      matmul_(pool),
      blocks_(make_blocks<CpuLayers<T>>(config, held.layers, dims_, matmul_)),
      head_(held.head ? std::make_unique<LossHead<T>>(dims_, matmul_) : nullptr),
      gradient_(held.passes_itself ? dims_.rows() * dims_.channels : 0),
      rows_by_token_(dims_.rows()) {
  for (std::int64_t i = 0; held.passes_itself && i <= config.layers; ++i)
    inputs_.emplace_back(dims_.rows() * dims_.channels);
}

template <class T>
std::int64_t Model<T>::bytes() const {
  auto bytes = static_cast<std::int64_t>(gradient_.bytes() + rows_by_token_.bytes());
  for (const Buffer<T>& input : inputs_) bytes += static_cast<std::int64_t>(input.bytes());
  return bytes + blocks_->bytes() + (head_ ? head_->bytes() : 0) + matmul_.scratch_bytes();
}

template <class T>
void Model<T>::embed(const MicroBatch& batch, const ParameterValues<T>& parameters) {
  embed(batch, parameters, input(0));
}

template <class T>
void Model<T>::embed(const MicroBatch& batch, const ParameterValues<T>& parameters, T* output) {
  const T* positions = names_.positions.empty() ? nullptr : parameters.value(names_.positions);
  const EmbedForward<T> call{batch.tokens.data(), parameters.value(names_.tokens),
                             positions,           output,
                             dims_.sequence,      dims_.channels};
  pool_.for_ranges(dims_.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_forward(call, {begin, end});
  });
}

template <class T>
void Model<T>::block(int layer, const ParameterValues<T>& parameters) {
  block(layer, parameters, input(layer), input(layer + 1));
}

template <class T>
double Model<T>::head(const MicroBatch& batch, double gradient_scale,
                      ParameterGradients<T>& parameters) {
  return head(batch, gradient_scale, parameters, input(layers()), gradient_.data());
}

template <class T>
double Model<T>::head(const MicroBatch& batch, double gradient_scale,
                      ParameterGradients<T>& parameters, const T* input, T* input_gradient) {
  return head_->run({input, batch.targets.data(), gradient_scale}, head_values(names_, parameters),
                    head_gradients(names_, parameters), input_gradient);
}

template <class T>
void Model<T>::block_backward(int layer, ParameterGradients<T>& parameters) {
  blocks_->backward(layer, input(layer), parameters, gradient_.data());
}

// Blocks turn the gradient of the output into that of the input, in place.
template <class T>
void Model<T>::block_backward(int number, ParameterGradients<T>& parameters, const T* input,
                              const T* output_gradient, T* input_gradient) {
  std::copy_n(output_gradient, dims_.rows() * dims_.channels, input_gradient);
  blocks_->backward(number, input, parameters, input_gradient);
}

template <class T>
void Model<T>::embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters) {
  embed_backward(batch, parameters, gradient_.data());
}

template <class T>
void Model<T>::embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters,
                              const T* output_gradient) {
  const auto order = rows_by_token_.span();
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto token_a = batch.tokens[static_cast<std::size_t>(a)];
    const auto token_b = batch.tokens[static_cast<std::size_t>(b)];
    return token_a != token_b ? token_a < token_b : a < b;
  });
  T* positions = names_.positions.empty() ? nullptr : parameters.grad(names_.positions);
  const EmbedBackward<T> call{
      batch.tokens.data(), order.data(), output_gradient, parameters.grad(names_.tokens),
      positions,           dims_.rows(), dims_.sequence,  dims_.channels};
  pool_.for_ranges(dims_.channels, 64, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_backward(call, {begin, end});
  });
}

template class Model<float>;
template class Model<zero::bf16>;
template class Model<zero::fp16>;
template class Model<double>;

}  // namespace gpt
