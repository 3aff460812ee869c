// Memory of the current GPU, allocated at start or at the first use, aligned to 256 bytes, not
// zeroed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "examples/gpt/cuda/check.h"
#include "examples/gpt/cuda/waits.h"

namespace gpt::cuda {

template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws MemoryError.
  explicit DeviceBuffer(std::int64_t count) : count_(count) {
    if (count == 0) return;
    void* data = nullptr;
    check(cudaMalloc(&data, bytes()), "cudaMalloc");
    data_.reset(static_cast<T*>(data));
  }

  // Copies from the host, and returns when the copy is done. Only used at start. A copy of memory
  // that is not page-locked blocks inside CUDA until the stream reaches the copy, so the stream is
  // awaited before, with a limit.
  void fill(const T* values, cudaStream_t stream) {
    waits().await(stream, "the work before a copy to it");
    check(cudaMemcpyAsync(data(), values, bytes(), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    waits().await(stream, "a copy to it");
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

 private:
  struct Release {
    void operator()(T* data) const {
      if (waits().stalled()) return;  // it would wait for the GPU
      if (cudaFree(data) != cudaSuccess) static_cast<void>(cudaGetLastError());
    }
  };

  std::unique_ptr<T, Release> data_;
  std::int64_t count_ = 0;
};

}  // namespace gpt::cuda
