// The model on a GPU: what examples/gpt/model.h is on the CPU, with parameters and gradients in the
// device's memory and all work queued on one stream. Nothing waits for the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/gpt/architecture.h"
#include "examples/gpt/blocks.h"
#include "examples/gpt/cuda/batch_upload.h"
#include "examples/gpt/cuda/loss_head.h"
#include "examples/gpt/cuda/token_order.h"
#include "examples/gpt/model_config.h"

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

  // On the current GPU. Throws MemoryError, and ConfigError where heads are too wide.
  DeviceModel(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
              cudaStream_t stream, const DeviceChoices& choices = {});
  ~DeviceModel();
  DeviceModel(const DeviceModel&) = delete;

  DeviceMatmul& products() { return matmul_; }
  int layers() const { return static_cast<int>(inputs_.size()) - 1; }
  const PartNames& names() const { return names_; }
  // Of the device.
  std::int64_t bytes() const;
  // By whose kernels it is, and why.
  std::string attention() const { return blocks_->attention(); }

  // In this order for each micro batch; blocks backward from the last. The batch is read by
  // embed() alone.
  void embed(const MicroBatch& batch, const ParameterValues<T>& parameters);
  void block(int layer, const ParameterValues<T>& parameters);
  // Returns where the mean loss will be, until the next head().
  Loss head(const MicroBatch& batch, Scale gradient_scale, ParameterGradients<T>& parameters);
  void block_backward(int layer, ParameterGradients<T>& parameters);
  void embed_backward(const MicroBatch& batch, ParameterGradients<T>& parameters);

 private:
  T* input(int layer) { return inputs_[static_cast<std::size_t>(layer)].data(); }

  PartNames names_;
  Dims dims_;
  cudaStream_t stream_;
  DeviceMatmul matmul_;
  std::unique_ptr<Blocks<T>> blocks_;
  LossHead<T> head_;
  BatchUpload batch_;
  TokenOrder order_;
  std::vector<DeviceBuffer<T>> inputs_;  // of each block, and of the head
  DeviceBuffer<T> gradient_;
  DeviceBuffer<float> embedding_sums_;
};

}  // namespace gpt::cuda
