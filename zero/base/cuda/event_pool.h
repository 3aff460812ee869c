// CUDA events without timestamps, for reuse, so that a step creates none. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "zero/base/cuda/check.h"

namespace zero::cuda {

class EventPool {
 public:
  ~EventPool() {
    for (const cudaEvent_t event : free_) note(cudaEventDestroy(event), "cudaEventDestroy");
  }
  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      return event;
    }
    event = free_.back();
    free_.pop_back();
    return event;
  }
  void give_back(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

}  // namespace zero::cuda
