// The counterpart of examples/gpt/cpu/model.h on a GPU, with parameters and gradients in the
// device's memory and all work queued on one stream. Nothing waits for the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/gpt/cpu/blocks.h"
#include "examples/gpt/cuda/batch_upload.h"
#include "examples/gpt/cuda/loss_head.h"
#include "examples/gpt/cuda/token_order.h"
#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/model_config.h"

namespace gpt::cuda {

struct DeviceChoices {
  Activations activations = Activations::keep;
  Products products = Products::joined;
  AttentionTerms attention = {};
};

template <class T>
class DeviceModel {
 public:
  using Element = T;
  using Loss = const float*;  // on the device
  using Scale = const float*;

  // Made on the current GPU. Throws MemoryError, and ConfigError if heads are too wide.
  DeviceModel(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
              cudaStream_t stream, const DeviceChoices& choices = {})
      : DeviceModel(config, dims_of(config, batch, sequence), stream, choices,
                    HeldActivations{held_layers(choices.activations, config.layers)}) {}
  DeviceModel(const ModelConfig& config, const Dims& dims, cudaStream_t stream,
              const DeviceChoices& choices, const HeldActivations& held);
  ~DeviceModel();
  DeviceModel(const DeviceModel&) = delete;

  DeviceMatmul& products() { return matmul_; }
  int layers() const { return layers_; }
  const PartNames& names() const { return names_; }
  // Bytes on the device.
  std::int64_t bytes() const;
  // Returns the origin of the attention kernels, and the reason.
  std::string attention() const { return blocks_->attention(); }

  // Call these in this order for each micro-batch; backward runs from the last block. Only embed()
  // reads the batch.
  void embed(const MicroBatch& batch, const ParameterValues<T>& parameters);
  void block(int layer, const ParameterValues<T>& parameters);
  // Returns the address of the future mean loss, valid until the next head().
  Loss head(const MicroBatch& batch, Scale gradient_scale, ParameterGradients<T>& parameters);
  void block_backward(int layer, ParameterGradients<T>& parameters);
  void embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters);

  // The same for parts of a stage of a pipeline, as in cpu/model.h. Each part that needs the batch
  // reads it.
  void embed(const MicroBatch& batch, const ParameterValues<T>& parameters, T* output);
  void block(int number, const ParameterValues<T>& parameters, const T* input, T* output) {
    blocks_->forward(number, input, parameters, output);
  }
  Loss head(const MicroBatch& batch, Scale gradient_scale, ParameterGradients<T>& parameters,
            const T* input, T* input_gradient);
  void block_backward(int number, ParameterGradients<T>& parameters, const T* input,
                      const T* output_gradient, T* input_gradient);
  void embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters,
                      const T* output_gradient);

 private:
  // These take the batch of the last upload.
  Loss run_head(Scale gradient_scale, ParameterGradients<T>& parameters, const T* input,
                T* input_gradient);
  void run_embed_backward(ParameterGradients<T>& parameters, const T* output_gradient);
  T* input(int layer) { return inputs_[static_cast<std::size_t>(layer)].data(); }

  PartNames names_;
  Dims dims_;
  int layers_;
  cudaStream_t stream_;
  DeviceMatmul matmul_;
  std::unique_ptr<Blocks<T>> blocks_;
  std::unique_ptr<LossHead<T>> head_;  // null if another stage has it
  BatchUpload batch_;
  TokenOrder order_;
  std::vector<DeviceBuffer<T>> inputs_;  // per block, and for the head
  DeviceBuffer<T> gradient_;
  DeviceBuffer<float> embedding_sums_;
};

}  // namespace gpt::cuda
