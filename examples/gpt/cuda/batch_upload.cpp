#include "examples/gpt/cuda/batch_upload.h"

#include <algorithm>

namespace gpt::cuda {

void BatchUpload::Release::operator()(std::int32_t* values) const {
  if (waits().stalled()) return;
  if (cudaFreeHost(values) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

void BatchUpload::Destroy::operator()(CUevent_st* event) const {
  if (cudaEventDestroy(event) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

BatchUpload::BatchUpload(std::int64_t rows, cudaStream_t stream)
    : rows_(rows), stream_(stream), device_(2 * rows) {
  void* host = nullptr;
  check(cudaHostAlloc(&host, stages * device_.bytes(), cudaHostAllocPortable), "cudaHostAlloc");
  host_.reset(static_cast<std::int32_t*>(host));
  for (auto& copied : copied_) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    copied.reset(event);
  }
}

// Waits, since copies may still be running.
BatchUpload::~BatchUpload() {
  waits().finish(stream_, "copies of batches");
}

void BatchUpload::upload(const MicroBatch& batch) {
  const std::size_t stage = next_++ % stages;
  const cudaEvent_t copied = copied_[stage].get();
  std::int32_t* values = host_.get() + static_cast<std::int64_t>(stage) * 2 * rows_;
  waits().await(copied, "the copy of a batch before");  // returns at once if never recorded
  std::copy(batch.tokens.begin(), batch.tokens.end(), values);
  std::copy(batch.targets.begin(), batch.targets.end(), values + rows_);
  check(cudaMemcpyAsync(device_.data(), values, device_.bytes(), cudaMemcpyDefault, stream_),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copied, stream_), "cudaEventRecord");
}

}  // namespace gpt::cuda
