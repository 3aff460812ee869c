#include "examples/gpt/cpu/decoder.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "examples/gpt/cpu/layers.h"
#include "examples/gpt/cpu/model_parts.h"

namespace gpt {

template <class T>
struct Decoder<T>::Products : Matmul {
  Products(zero::ThreadPool& pool, const ModelConfig& config, const Dims& dims,
           std::int64_t context)
      : Matmul(pool), cache(config.layers, context, dims.key_channels()) {}

  KeyValueCache<T> cache;
};

// Operations on the row of one token, at the cache's position.
template <class E>
class Decoder<E>::Layers : public CpuLayers<E> {
 public:
  using T = E;
  using Acc = accumulate_t<T>;
  using Products = typename Decoder<E>::Products;
  using Rope = gpt::Rope<T>;

  Layers(const Dims& dims, Products& products, std::int64_t widest_sum, RowDistances distances)
      : CpuLayers<E>(dims, products, widest_sum, distances),
        dims_(dims),
        products_(products),
        scores_(dims.heads * products.cache.context) {}

  Rope make_rope(const RopeConfig& rope) const {
    return {rope, products_.cache.context, dims_.head_channels};
  }
  void turn(const Rope& rope, T* data, const RowsOf& rows) {
    rope.rotate_at(products_.cache.position, data, rows.width / dims_.head_channels);
  }

  void attend(const Qkv<const T>& qkv, T* out, Acc*) {
    KeyValueCache<T>& cache = products_.cache;
    std::copy_n(qkv.key, cache.key_channels, cache.keys.data() + cache.offset(cache.position));
    std::copy_n(qkv.value, cache.key_channels, cache.values.data() + cache.offset(cache.position));
    products_.pool().for_ranges(dims_.heads, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t head = begin; head < end; ++head) attend(head, qkv.query, out);
    });
  }

 private:
  // The softmax of the products with all keys so far weighs the values.
  void attend(std::int64_t head, const T* query, T* out) {
    const KeyValueCache<T>& cache = products_.cache;
    const std::int64_t width = dims_.head_channels, count = cache.position + 1;
    const std::int64_t channel = head / (dims_.heads / dims_.key_heads) * width;
    const T* keys = cache.keys.data() + cache.offset(0) + channel;
    const T* values = cache.values.data() + cache.offset(0) + channel;
    Acc* scores = scores_.data() + head * cache.context;
    const Acc scale = 1 / std::sqrt(static_cast<Acc>(width));
    for (std::int64_t t = 0; t < count; ++t) {
      Acc sum = 0;
      for (std::int64_t c = 0; c < width; ++c)
        sum += zero::to_float(query[head * width + c]) *
               zero::to_float(keys[t * cache.key_channels + c]);
      scores[t] = sum * scale;
    }
    const Acc most = *std::max_element(scores, scores + count);
    Acc total = 0;
    for (std::int64_t t = 0; t < count; ++t) total += scores[t] = std::exp(scores[t] - most);
    for (std::int64_t c = 0; c < width; ++c) {
      Acc sum = 0;
      for (std::int64_t t = 0; t < count; ++t)
        sum += scores[t] * zero::to_float(values[t * cache.key_channels + c]);
      out[head * width + c] = zero::from_float<T>(sum / total);
    }
  }

  Dims dims_;
  Products& products_;
  Buffer<Acc> scores_;  // [heads, context]
};

template <class T>
Decoder<T>::Decoder(const ModelConfig& config, std::int64_t context, zero::ThreadPool& pool)
    : names_(names_of(config)),
      dims_(dims_of(config, 1, 1)),
      layers_(static_cast<int>(config.layers)),
      products_(std::make_unique<Products>(pool, config, dims_, context)),
      blocks_(make_blocks<Layers>(config, Activations::recompute, dims_, *products_)),
      norm_(dims_, pool),
      rows_(context * dims_.channels),
      normed_(dims_.channels),
      logits_(dims_.vocabulary) {
  products_->template prepare<T, float>(logits_shape(dims_, 1, dims_.vocabulary));
}

template <class T>
Decoder<T>::~Decoder() = default;

template <class T>
std::int64_t Decoder<T>::cache_bytes() const {
  return static_cast<std::int64_t>(products_->cache.keys.bytes() + products_->cache.values.bytes());
}

template <class T>
void Decoder<T>::embed(std::span<const std::int32_t> tokens, const ParameterValues<T>& parameters) {
  before_ += std::exchange(tokens_, std::ssize(tokens));
  if (before_ + tokens_ > products_->cache.context)
    throw std::logic_error("more tokens than the context has");
  const T* table = parameters.value(names_.tokens);
  const T* positions = names_.positions.empty() ? nullptr : parameters.value(names_.positions);
  if (positions != nullptr) positions += before_ * dims_.channels;
  const EmbedForward<T> call{tokens.data(), table,   positions,
                             rows_.data(),  tokens_, dims_.channels};
  kernels<T>().embed_forward(call, {0, tokens_});
}

template <class T>
void Decoder<T>::block(int layer, const ParameterValues<T>& parameters) {
  products_->cache.layer = layer;
  for (std::int64_t t = 0; t < tokens_; ++t) {
    products_->cache.position = before_ + t;
    blocks_->forward(layer, row(t), parameters, normed_.data());
    std::copy_n(normed_.data(), dims_.channels, row(t));
  }
}

template <class T>
std::span<const float> Decoder<T>::head(const ParameterValues<T>& parameters) {
  const HeadValues<T> values = head_values(names_, parameters);
  norm_.forward(row(tokens_ - 1), values.norm, normed_.data());
  products_->template run<T, float>({logits_shape(dims_, 1, dims_.vocabulary), normed_.data(),
                                     values.classifier, logits_.data()});
  return logits_.span();
}

template class Decoder<float>;
template class Decoder<zero::bf16>;
template class Decoder<zero::fp16>;

}  // namespace gpt
