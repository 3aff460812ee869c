#include "zero/base/cuda/cuda_stream.h"

#include <exception>

#include "zero/base/cuda/check.h"

namespace zero::cuda {

namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { note(cudaEventDestroy(event_), "cudaEventDestroy"); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool complete() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery");
    return true;
  }
  void synchronize() override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public ExecutionStream {
 public:
  CudaStream(cudaStream_t stream, bool owned) : stream_(stream), owned_(owned) {}
  ~CudaStream() override {
    if (owned_) note(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  const char* kind() const override { return "cuda"; }
  Stream native() const override { return {stream_}; }
  std::unique_ptr<Event> create_event() override { return std::make_unique<CudaEvent>(); }

  void enqueue(Work work) override {
    if (failure_) std::rethrow_exception(failure_);
    try {
      work(native());
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  void record(Event& event) override {
    check(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "cudaEventRecord");
  }
  void wait(Event& event) override {
    check(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get(), 0),
          "cudaStreamWaitEvent");
  }
  void synchronize() override {
    if (failure_) std::rethrow_exception(failure_);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_;
  bool owned_;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<ExecutionStream> create_stream(bool high_priority) {
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     high_priority ? greatest : least),
        "cudaStreamCreateWithPriority");
  return std::make_unique<CudaStream>(stream, true);
}

std::unique_ptr<ExecutionStream> borrow_stream(cudaStream_t stream) {
  return std::make_unique<CudaStream>(stream, false);
}

}  // namespace zero::cuda
