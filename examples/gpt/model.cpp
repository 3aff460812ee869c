#include "examples/gpt/model.h"

#include <algorithm>
#include <numeric>

namespace gpt {
namespace {

Dims dims_of(const ModelConfig& config, std::int64_t batch, std::int64_t sequence) {
  return {batch,        sequence,          config.channels,
          config.heads, config.vocabulary, config.layer_norm_epsilon};
}

}  // namespace

template <class T>
Model<T>::Model(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
                zero::ThreadPool& pool, Activations activations)
    : dims_(dims_of(config, batch, sequence)),
      pool_(pool),
      matmul_(pool),
      workspace_(dims_, matmul_),
      head_(dims_, matmul_),
      gradient_(dims_.rows() * dims_.channels),
      rows_by_token_(dims_.rows()) {
  const std::int64_t blocks = activations == Activations::keep ? config.layers : 1;
  for (std::int64_t i = 0; i < blocks; ++i) blocks_.emplace_back(dims_, matmul_, workspace_);
  for (std::int64_t i = 0; i <= config.layers; ++i)
    inputs_.emplace_back(dims_.rows() * dims_.channels);
}

template <class T>
std::int64_t Model<T>::bytes() const {
  auto bytes = static_cast<std::int64_t>(gradient_.bytes() + rows_by_token_.bytes());
  for (const Buffer<T>& input : inputs_) bytes += static_cast<std::int64_t>(input.bytes());
  for (const Block<T>& block : blocks_) bytes += block.bytes();
  return bytes + workspace_.bytes() + head_.bytes() + matmul_.scratch_bytes();
}

template <class T>
void Model<T>::embed(const MicroBatch& batch, const EmbeddingValues<T>& values) {
  const EmbedForward<T> call{batch.tokens.data(), values.tokens, values.positions, input(0),
                             dims_.sequence,      dims_.channels};
  pool_.for_ranges(dims_.rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_forward(call, {begin, end});
  });
}

template <class T>
void Model<T>::block(int layer, const BlockValues<T>& values) {
  block_of(layer).forward(layer, input(layer), values, input(layer + 1));
}

template <class T>
double Model<T>::head(const MicroBatch& batch, double gradient_scale, const HeadValues<T>& values,
                      const HeadGradients<T>& gradients) {
  return head_.run({input(layers()), batch.targets.data(), gradient_scale}, values, gradients,
                   gradient_.data());
}

template <class T>
void Model<T>::block_backward(int layer, const BlockValues<T>& values,
                              const BlockGradients<T>& gradients) {
  block_of(layer).backward(layer, input(layer), values, gradients, gradient_.data());
}

template <class T>
void Model<T>::embed_backward(const MicroBatch& batch, const EmbeddingGradients<T>& gradients) {
  const auto order = rows_by_token_.span();
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto token_a = batch.tokens[static_cast<std::size_t>(a)];
    const auto token_b = batch.tokens[static_cast<std::size_t>(b)];
    return token_a != token_b ? token_a < token_b : a < b;
  });
  const EmbedBackward<T> call{batch.tokens.data(), order.data(), gradient_.data(), gradients.tokens,
                              gradients.positions, dims_.rows(), dims_.sequence,   dims_.channels};
  pool_.for_ranges(dims_.channels, 64, [&](std::int64_t begin, std::int64_t end) {
    kernels<T>().embed_backward(call, {begin, end});
  });
}

template class Model<float>;
template class Model<zero::bf16>;
template class Model<zero::fp16>;
template class Model<double>;

}  // namespace gpt
