// GPT-2 by hand: learned positions, pre-LayerNorm blocks, tied head. Knows nothing of ranks or
// shards: the caller hands in the parameters of one part at a time (training_step.h takes them from
// scopes).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "examples/gpt/block.h"
#include "examples/gpt/loss_head.h"
#include "examples/gpt/model_config.h"

namespace gpt {

struct MicroBatch {
  std::span<const std::int32_t> tokens, targets;  // [batch, sequence]
};

template <class T>
struct EmbeddingValues {
  const T* tokens;     // [V, C]
  const T* positions;  // [context, C]
};

template <class T>
struct EmbeddingGradients {
  T* tokens;
  T* positions;
};

// What stays between forward and backward: all that backward reads, or only each block's input,
// from which backward computes the rest again. The bits are the same.
enum class Activations { keep, recompute };

template <class T>
class Model {
 public:
  Model(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
        zero::ThreadPool& pool, Activations activations = Activations::keep);
  Model(const Model&) = delete;

  int layers() const { return static_cast<int>(inputs_.size()) - 1; }
  std::int64_t bytes() const;

  // In this order for each micro batch; blocks backward from the last.
  void embed(const MicroBatch& batch, const EmbeddingValues<T>& values);
  void block(int layer, const BlockValues<T>& values);
  // Returns the mean loss.
  double head(const MicroBatch& batch, double gradient_scale, const HeadValues<T>& values,
              const HeadGradients<T>& gradients);
  void block_backward(int layer, const BlockValues<T>& values, const BlockGradients<T>& gradients);
  void embed_backward(const MicroBatch& batch, const EmbeddingGradients<T>& gradients);

 private:
  Block<T>& block_of(int layer) {
    return blocks_[static_cast<std::size_t>(layer) % blocks_.size()];
  }
  T* input(int layer) { return inputs_[static_cast<std::size_t>(layer)].data(); }

  Dims dims_;
  zero::ThreadPool& pool_;
  Matmul matmul_;
  BlockWorkspace<T> workspace_;
  std::deque<Block<T>> blocks_;  // of each layer, or one for all
  LossHead<T> head_;
  std::vector<Buffer<T>> inputs_;  // of each block, and of the head
  Buffer<T> gradient_;
  Buffer<std::int32_t> rows_by_token_;
};

}  // namespace gpt
