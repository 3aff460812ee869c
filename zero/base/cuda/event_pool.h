// CUDA events without timestamps, for reuse, so that a step creates none. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "zero/base/cuda/call.h"

namespace zero::cuda {

class EventPool {
 public:
  ~EventPool() {
    for (const cudaEvent_t event : free_)
      call_cuda_quietly("cudaEventDestroy", cudaEventDestroy, event);
  }
  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      call_cuda("cudaEventCreateWithFlags", cudaEventCreateWithFlags, &event,
                cudaEventDisableTiming);
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
