#include "examples/gpt/cuda/device_model.h"

#include <string>

#include "examples/gpt/cpu/model_parts.h"
#include "examples/gpt/cuda/layers.h"
#include "zero/base/error.h"

namespace gpt::cuda {
namespace {

Dims checked(Dims dims, const AttentionTerms& attention) {
  if (dims.head_channels > most_head_channels)
    throw zero::ConfigError("heads of " + std::to_string(dims.head_channels) +
                            " channels: on a GPU this trainer supports at most " +
                            std::to_string(most_head_channels) + "; give --device cpu");
  dims.attention = attention;
  return dims;
}

}  // namespace

template <class T>
DeviceModel<T>::DeviceModel(const ModelConfig& config, const Dims& dims, cudaStream_t stream,
                            const DeviceChoices& choices, const HeldActivations& held)
    : names_(names_of(config)),
      dims_(checked(dims, choices.attention)),
      layers_(static_cast<int>(config.layers)),
      stream_(stream),
      matmul_(stream),
      blocks_(make_blocks<DeviceLayers<T>>(config, held.layers, dims_, matmul_, choices.products)),
      head_(held.head ? std::make_unique<LossHead<T>>(dims_, matmul_) : nullptr),
      batch_(dims_.rows(), stream),
      order_(dims_.rows(), dims_.vocabulary, stream),
      gradient_(held.passes_itself ? dims_.rows() * dims_.channels : 0),
      embedding_sums_(embed_scratch(dims_.rows(), dims_.channels)) {
  for (std::int64_t i = 0; held.passes_itself && i <= config.layers; ++i)
    inputs_.emplace_back(dims_.rows() * dims_.channels);
}

// Waits, since queued work still uses the memory.
template <class T>
DeviceModel<T>::~DeviceModel() {
  waits().finish(stream_, "the work of the last step");
}

template <class T>
std::int64_t DeviceModel<T>::bytes() const {
  auto bytes = static_cast<std::int64_t>(gradient_.bytes() + embedding_sums_.bytes());
  for (const DeviceBuffer<T>& input : inputs_) bytes += static_cast<std::int64_t>(input.bytes());
  return bytes + blocks_->bytes() + (head_ ? head_->bytes() : 0) + batch_.bytes() + order_.bytes() +
         matmul_.bytes();
}

template <class T>
void DeviceModel<T>::embed(const MicroBatch& batch, const ParameterValues<T>& parameters) {
  embed(batch, parameters, input(0));
}

template <class T>
void DeviceModel<T>::embed(const MicroBatch& batch, const ParameterValues<T>& parameters,
                           T* output) {
  batch_.upload(batch);
  const T* positions = names_.positions.empty() ? nullptr : parameters.value(names_.positions);
  embed_forward(EmbedForward<T>{batch_.tokens(), parameters.value(names_.tokens), positions, output,
                                dims_.sequence, dims_.channels},
                dims_.rows(), stream_);
}

template <class T>
void DeviceModel<T>::block(int layer, const ParameterValues<T>& parameters) {
  block(layer, parameters, input(layer), input(layer + 1));
}

template <class T>
const float* DeviceModel<T>::run_head(Scale gradient_scale, ParameterGradients<T>& parameters,
                                      const T* input, T* input_gradient) {
  return head_->run({input, batch_.targets(), gradient_scale}, head_values(names_, parameters),
                    head_gradients(names_, parameters), input_gradient);
}

template <class T>
const float* DeviceModel<T>::head(const MicroBatch&, Scale gradient_scale,
                                  ParameterGradients<T>& parameters) {
  return run_head(gradient_scale, parameters, input(layers()), gradient_.data());
}

template <class T>
const float* DeviceModel<T>::head(const MicroBatch& batch, Scale gradient_scale,
                                  ParameterGradients<T>& parameters, const T* input,
                                  T* input_gradient) {
  batch_.upload(batch);
  return run_head(gradient_scale, parameters, input, input_gradient);
}

template <class T>
void DeviceModel<T>::block_backward(int layer, ParameterGradients<T>& parameters) {
  blocks_->backward(layer, input(layer), parameters, gradient_.data());
}

// Blocks turn the gradient of the output into that of the input, in place.
template <class T>
void DeviceModel<T>::block_backward(int number, ParameterGradients<T>& parameters, const T* input,
                                    const T* output_gradient, T* input_gradient) {
  const auto bytes = static_cast<std::size_t>(dims_.rows() * dims_.channels) * sizeof(T);
  check(cudaMemcpyAsync(input_gradient, output_gradient, bytes, cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
  blocks_->backward(number, input, parameters, input_gradient);
}

template <class T>
void DeviceModel<T>::run_embed_backward(ParameterGradients<T>& parameters,
                                        const T* output_gradient) {
  T* positions = names_.positions.empty() ? nullptr : parameters.grad(names_.positions);
  gpt::cuda::embed_backward(
      EmbedBackward<T>{batch_.tokens(), order_.sort(batch_.tokens()), output_gradient,
                       parameters.grad(names_.tokens), positions, dims_.rows(), dims_.sequence,
                       dims_.channels},
      embedding_sums_.data(), stream_);
}

template <class T>
void DeviceModel<T>::embed_backward(const MicroBatch&, ParameterGradients<T>& parameters) {
  run_embed_backward(parameters, gradient_.data());
}

template <class T>
void DeviceModel<T>::embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters,
                                    const T* output_gradient) {
  batch_.upload(batch);  // that of another micro-batch may have come since forward
  run_embed_backward(parameters, output_gradient);
}

template class DeviceModel<float>;
template class DeviceModel<zero::bf16>;
template class DeviceModel<zero::fp16>;

}  // namespace gpt::cuda
