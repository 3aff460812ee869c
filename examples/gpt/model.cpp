#include "examples/gpt/model.h"

#include <algorithm>
#include <numeric>

#include "examples/gpt/gpt2_block.h"
#include "examples/gpt/llama_block.h"

namespace gpt {
namespace {

Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  Dims dims = family_of(config).dims(config);
  dims.batch = batch;
  dims.sequence = sequence;
  return dims;
}

// `held`: layers whose intermediate values are kept at a time.
template <class T>
std::unique_ptr<Blocks<T>> make_blocks(const ModelConfig& config, std::int64_t held,
                                       const Dims& dims, Matmul& matmul) {
  if (config.llama)
    return std::make_unique<BlocksOf<T, LlamaBlock<T>>>(held, dims, matmul, *config.llama);
  return std::make_unique<BlocksOf<T, Gpt2Block<T>>>(held, dims, matmul);
}

}  // namespace

template <class T>
Model<T>::Model(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
                zero::ThreadPool& pool, Activations activations)
    : names_(family_of(config).names(config)),
      dims_(dims_of(config, batch, sequence)),
      pool_(pool),
      matmul_(pool),
      blocks_(make_blocks<T>(config, activations == Activations::keep ? config.layers : 1, dims_,
                             matmul_)),
      head_(dims_, matmul_),
      gradient_(dims_.rows() * dims_.channels),
      rows_by_token_(dims_.rows()) {
  for (std::int64_t i = 0; i <= config.layers; ++i)
    inputs_.emplace_back(dims_.rows() * dims_.channels);
}

template <class T>
std::int64_t Model<T>::bytes() const {
  auto bytes = static_cast<std::int64_t>(gradient_.bytes() + rows_by_token_.bytes());
  for (const Buffer<T>& input : inputs_) bytes += static_cast<std::int64_t>(input.bytes());
  return bytes + blocks_->bytes() + head_.bytes() + matmul_.scratch_bytes();
}

template <class T>
void Model<T>::embed(const MicroBatch& batch, const ParameterValues<T>& parameters) {
  const T* positions = names_.positions.empty() ? nullptr : parameters.value(names_.positions);
  const EmbedForward<T> call{batch.tokens.data(), parameters.value(names_.tokens),
                             positions,           input(0),
                             dims_.sequence,      dims_.channels};
  pool_.for_ranges(dims_.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_forward(call, {begin, end});
  });
}

template <class T>
void Model<T>::block(int layer, const ParameterValues<T>& parameters) {
  blocks_->forward(layer, input(layer), parameters, input(layer + 1));
}

template <class T>
double Model<T>::head(const MicroBatch& batch, double gradient_scale,
                      ParameterGradients<T>& parameters) {
  const bool bias = !names_.norm_bias.empty();
  const HeadValues<T> values{
      {parameters.value(names_.norm_weight), bias ? parameters.value(names_.norm_bias) : nullptr},
      parameters.value(names_.classifier)};
  const HeadGradients<T> gradients{
      {parameters.grad(names_.norm_weight), bias ? parameters.grad(names_.norm_bias) : nullptr},
      parameters.target(names_.classifier)};
  return head_.run({input(layers()), batch.targets.data(), gradient_scale}, values, gradients,
                   gradient_.data());
}

template <class T>
void Model<T>::block_backward(int layer, ParameterGradients<T>& parameters) {
  blocks_->backward(layer, input(layer), parameters, gradient_.data());
}

template <class T>
void Model<T>::embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters) {
  const auto order = rows_by_token_.span();
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto token_a = batch.tokens[static_cast<std::size_t>(a)];
    const auto token_b = batch.tokens[static_cast<std::size_t>(b)];
    return token_a != token_b ? token_a < token_b : a < b;
  });
  T* positions = names_.positions.empty() ? nullptr : parameters.grad(names_.positions);
  const EmbedBackward<T> call{
      batch.tokens.data(), order.data(), gradient_.data(), parameters.grad(names_.tokens),
      positions,           dims_.rows(), dims_.sequence,   dims_.channels};
  pool_.for_ranges(dims_.channels, 64, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_backward(call, {begin, end});
  });
}

template class Model<float>;
template class Model<zero::bf16>;
template class Model<zero::fp16>;
template class Model<double>;

}  // namespace gpt
