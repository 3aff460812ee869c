#include "zero/base/cuda/cuda_stream.h"

#include <cmath>
#include <exception>

#include "zero/base/cuda/call.h"

namespace zero::cuda {

namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(DeviceWaits* waits, unsigned flags = cudaEventDisableTiming) : waits_(waits) {
    call_cuda("cudaEventCreateWithFlags", cudaEventCreateWithFlags, &event_, flags);
  }
  ~CudaEvent() override { call_cuda_quietly("cudaEventDestroy", cudaEventDestroy, event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool complete() const override { return reached(event_); }
  void synchronize() override {
    waits_->await([this] { return complete(); });
  }
  cudaEvent_t get() const { return event_; }

 private:
  DeviceWaits* waits_;  // null if no thread waits
  cudaEvent_t event_ = nullptr;
};

class CudaTimer final : public StreamTimer {
 public:
  void start(Stream stream) override { record(started_, stream); }
  void stop(Stream stream) override { record(stopped_, stream); }
  std::optional<std::int64_t> nanoseconds() const override {
    if (!stopped_.complete()) return std::nullopt;
    float milliseconds = 0;
    call_cuda("cudaEventElapsedTime", cudaEventElapsedTime, &milliseconds, started_.get(),
              stopped_.get());
    return std::llround(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  static void record(const CudaEvent& event, Stream stream) {
    call_cuda("cudaEventRecord", cudaEventRecord, event.get(), native(stream));
  }

  CudaEvent started_{nullptr, cudaEventDefault}, stopped_{nullptr, cudaEventDefault};
};

class CudaStream final : public ExecutionStream {
 public:
  CudaStream(cudaStream_t stream, bool owned, DeviceWaits& waits)
      : stream_(stream), owned_(owned), waits_(waits), end_(&waits) {}
  ~CudaStream() override {
    if (owned_) call_cuda_quietly("cudaStreamDestroy", cudaStreamDestroy, stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  const char* kind() const override { return "cuda"; }
  Stream native() const override { return {stream_}; }
  std::unique_ptr<Event> create_event() override { return std::make_unique<CudaEvent>(&waits_); }

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
    zero::cuda::call_cuda("cudaEventRecord", cudaEventRecord, static_cast<CudaEvent&>(event).get(),
                          stream_);
  }
  void wait(Event& event) override {
    if (const auto* gate = dynamic_cast<Gate*>(&event)) return gate->hold(stream_);
    zero::cuda::call_cuda("cudaStreamWaitEvent", cudaStreamWaitEvent, stream_,
                          static_cast<CudaEvent&>(event).get(), 0);
  }
  void synchronize() override {
    if (failure_) std::rethrow_exception(failure_);
    record(end_);
    end_.synchronize();
  }
  void check() override {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  cudaStream_t stream_;
  bool owned_;
  DeviceWaits& waits_;
  CudaEvent end_;  // after the work queued before synchronize()
  std::exception_ptr failure_;
};

}  // namespace

bool reached(cudaEvent_t event) {
  const cudaError_t state = result_of("cudaEventQuery", cudaEventQuery, event);
  if (state == cudaErrorNotReady) return false;
  check(state, "cudaEventQuery");
  return true;
}

std::unique_ptr<ExecutionStream> create_stream(bool high_priority, DeviceWaits& waits) {
  int least = 0, greatest = 0;
  call_cuda("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange, &least,
            &greatest);
  cudaStream_t stream = nullptr;
  call_cuda("cudaStreamCreateWithPriority", cudaStreamCreateWithPriority, &stream,
            cudaStreamNonBlocking, high_priority ? greatest : least);
  return std::make_unique<CudaStream>(stream, true, waits);
}

std::unique_ptr<ExecutionStream> borrow_stream(cudaStream_t stream, DeviceWaits& waits) {
  return std::make_unique<CudaStream>(stream, false, waits);
}

std::unique_ptr<StreamTimer> create_timer() {
  return std::make_unique<CudaTimer>();
}

}  // namespace zero::cuda
