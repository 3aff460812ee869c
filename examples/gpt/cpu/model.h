// A hand-written transformer of any family: embedding, blocks, loss head. Independent of ranks and
// shards: the caller passes the parameters of one part at a time (training_step.h takes them from
// scopes). In a stage of a pipeline the caller also passes what parts pass on to each other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/cpu/loss_head.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/data/micro_batch.h"
#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/parameters.h"

namespace gpt {

template <class T>
class Model {
 public:
  using Element = T;
  using Loss = double;
  using Scale = float;

  Model(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
        zero::ThreadPool& pool, Activations activations = Activations::keep)
      : Model(config, dims_of(config, batch, sequence), pool,
              HeldActivations{held_layers(activations, config.layers)}) {}
  Model(const ModelConfig& config, const Dims& dims, zero::ThreadPool& pool,
        const HeldActivations& held);
  Model(const Model&) = delete;

  int layers() const { return layers_; }
  const PartNames& names() const { return names_; }
  std::int64_t bytes() const;

  // Call these in this order for each micro-batch; backward runs from the last block.
  void embed(const MicroBatch& batch, const ParameterValues<T>& parameters);
  void block(int layer, const ParameterValues<T>& parameters);
  // Returns the mean loss.
  Loss head(const MicroBatch& batch, double gradient_scale, ParameterGradients<T>& parameters);
  void block_backward(int layer, ParameterGradients<T>& parameters);
  void embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters);

  // The same for parts of a stage of a pipeline. Arrays are [rows, C]; a block's number is that of
  // the layer among all layers whose activations are held, in turn over the micro-batches.
  void embed(const MicroBatch& batch, const ParameterValues<T>& parameters, T* output);
  void block(int number, const ParameterValues<T>& parameters, const T* input, T* output) {
    blocks_->forward(number, input, parameters, output);
  }
  Loss head(const MicroBatch& batch, double gradient_scale, ParameterGradients<T>& parameters,
            const T* input, T* input_gradient);
  void block_backward(int number, ParameterGradients<T>& parameters, const T* input,
                      const T* output_gradient, T* input_gradient);
  void embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters,
                      const T* output_gradient);

 private:
  T* input(int layer) { return inputs_[static_cast<std::size_t>(layer)].data(); }

  PartNames names_;
  Dims dims_;
  int layers_;
  zero::ThreadPool& pool_;
  Matmul matmul_;
  std::unique_ptr<Blocks<T>> blocks_;
  std::unique_ptr<LossHead<T>> head_;  // null if another stage has it
  std::vector<Buffer<T>> inputs_;      // per block, and for the head
  Buffer<T> gradient_;
  Buffer<std::int32_t> rows_by_token_;
};

}  // namespace gpt
