// Uploads tokens and targets to the GPU from page-locked buffers that are used in turn, so that the
// host waits only if several micro-batches ahead.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>

#include "examples/gpt/cuda/device_buffer.h"
#include "examples/gpt/data/micro_batch.h"

namespace gpt::cuda {

class BatchUpload {
 public:
  // `rows`: tokens of a micro-batch.
  BatchUpload(std::int64_t rows, cudaStream_t stream);
  ~BatchUpload();
  BatchUpload(const BatchUpload&) = delete;

  void upload(const MicroBatch& batch);
  // Tokens and targets of the last upload, valid in the order of the stream.
  const std::int32_t* tokens() const { return device_.data(); }
  const std::int32_t* targets() const { return device_.data() + rows_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(device_.bytes()); }

 private:
  static constexpr std::size_t stages = 4;

  struct Release {
    void operator()(std::int32_t* values) const;
  };
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };

  std::int64_t rows_;
  cudaStream_t stream_;
  // [stages, 2, rows]. Allocated by CUDA, since some drivers and containers refuse to lock the
  // program's own memory.
  std::unique_ptr<std::int32_t, Release> host_;
  std::array<std::unique_ptr<CUevent_st, Destroy>, stages> copied_;
  std::size_t next_ = 0;
  DeviceBuffer<std::int32_t> device_;
};

}  // namespace gpt::cuda
