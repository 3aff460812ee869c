// Generates on the CPU: reads tokens one after another, and keeps the keys and values of all tokens
// so far, so that a new token costs one row of each product. The blocks are those that train
// (blocks.h), with other operations where positions matter. The counterpart for training is
// model.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/cpu/norm.h"
#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/parameters.h"

namespace gpt {

// Keys and values of all layers, [layer, position, key channels]; and the place of the next token.
template <class T>
struct KeyValueCache {
  KeyValueCache(std::int64_t layers, std::int64_t context, std::int64_t key_channels)
      : context(context),
        key_channels(key_channels),
        keys(layers * context * key_channels),
        values(layers * context * key_channels) {}

  std::int64_t offset(std::int64_t at) const { return (layer * context + at) * key_channels; }

  std::int64_t context, key_channels;
  Buffer<T> keys, values;
  std::int64_t layer = 0, position = 0;
};

template <class T>
class Decoder {
 public:
  // `context`: the most tokens in all. Takes all memory.
  Decoder(const ModelConfig& config, std::int64_t context, zero::ThreadPool& pool);
  ~Decoder();
  Decoder(const Decoder&) = delete;

  const PartNames& names() const { return names_; }
  int layers() const { return layers_; }
  std::int64_t cache_bytes() const;

  // Call in this order for each pass over the model. embed() takes the tokens that follow those of
  // earlier passes; the pass handles them one after another in each part.
  void embed(std::span<const std::int32_t> tokens, const ParameterValues<T>& parameters);
  void block(int layer, const ParameterValues<T>& parameters);
  // Returns the logits of the token after the last, [vocabulary], valid until the next pass.
  std::span<const float> head(const ParameterValues<T>& parameters);

 private:
  struct Products;
  class Layers;

  T* row(std::int64_t token) { return rows_.data() + token * dims_.channels; }

  PartNames names_;
  Dims dims_;  // of one token
  int layers_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<Blocks<T>> blocks_;
  Norm<T> norm_;
  Buffer<T> rows_;  // [tokens of the pass, channels]
  Buffer<T> normed_;
  Buffer<float> logits_;
  std::int64_t before_ = 0, tokens_ = 0;  // of earlier passes, and of this one
};

}  // namespace gpt
