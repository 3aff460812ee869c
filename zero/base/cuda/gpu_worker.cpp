#include "zero/base/cuda/gpu_worker.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "zero/base/cpu/worker_stream.h"
#include "zero/base/cuda/call.h"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/driver.h"
#include "zero/base/error.h"

namespace zero::cuda {

namespace {

// cuStreamWaitValue32 and cuStreamWriteValue32 of the driver, which is not linked. Arguments:
// CUstream, CUdeviceptr, the value, flags; result: CUresult. Flags of 0 mean "greater or equal,
// cyclic" (CU_STREAM_WAIT_VALUE_GEQ) and a write after all earlier writes of the stream
// (CU_STREAM_WRITE_VALUE_DEFAULT).
using ValueCall = int (*)(cudaStream_t, unsigned long long, std::uint32_t, unsigned);

ValueCall find_value_call(const char* name) {
  void* function = find_in_driver(name, 12000);
  if (function == nullptr)
    throw TopologyError(std::string("offload on GPU ranks needs ") + name +
                        ", which this driver lacks: update it to CUDA 12 or newer");
  return reinterpret_cast<ValueCall>(function);
}

void call_driver(ValueCall function, const char* name, cudaStream_t stream,
                 unsigned long long address, std::uint32_t value) {
  const InCall inside(name);
  if (const int error = function(stream, address, value, 0); error != 0)
    throw TopologyError(std::string(name) + ": the driver refuses it (CUresult " +
                        std::to_string(error) + "), and offload on GPU ranks needs it");
}

void wait_for_value(cudaStream_t stream, unsigned long long address, std::uint32_t value) {
  static const ValueCall wait = find_value_call("cuStreamWaitValue32");
  call_driver(wait, "cuStreamWaitValue32", stream, address, value);
}

void write_value(cudaStream_t stream, unsigned long long address, std::uint32_t value) {
  static const ValueCall write = find_value_call("cuStreamWriteValue32");
  call_driver(write, "cuStreamWriteValue32", stream, address, value);
}

// Counters in page-locked memory that the GPU reads; initially zero.
class Counters {
 public:
  explicit Counters(DeviceWaits& waits) : waits_(waits) {}

  struct Counter {
    std::uint32_t* word = nullptr;
    unsigned long long address = 0;  // for the GPU
  };

  Counter take() {
    if (used_ == page_words) {
      pages_.push_back(std::make_unique<Page>(waits_));
      used_ = 0;
    }
    const Page& page = *pages_.back();
    const auto at = used_++;
    return {page.words + at, page.address + at * sizeof(std::uint32_t)};
  }

 private:
  static constexpr std::size_t page_words = 1024;
  struct Page {
    explicit Page(DeviceWaits& device_waits) : waits(device_waits) {
      void *data = nullptr, *mapped = nullptr;
      call_cuda("cudaHostAlloc", cudaHostAlloc, &data, page_words * sizeof(std::uint32_t),
                cudaHostAllocPortable | cudaHostAllocMapped);
      words = static_cast<std::uint32_t*>(data);
      std::fill(words, words + page_words, 0u);
      call_cuda("cudaHostGetDevicePointer", cudaHostGetDevicePointer, &mapped, data, 0);
      address = reinterpret_cast<unsigned long long>(mapped);
    }
    ~Page() {
      if (!waits.stalled()) call_cuda_quietly("cudaFreeHost", cudaFreeHost, words);
    }
    Page(const Page&) = delete;
    DeviceWaits& waits;
    std::uint32_t* words = nullptr;
    unsigned long long address = 0;
  };

  DeviceWaits& waits_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::size_t used_ = page_words;
};

// An event that the GPU waits for by a counter.
class CountedEvent final : public WorkerEvent, public Gate {
 public:
  CountedEvent(WorkerStream& stream, Counters::Counter counter)
      : WorkerEvent(stream), counter_(counter) {}

  void record() {
    set(stream().enqueue_always([word = counter_.word, value = ++value_](Stream) {
      std::atomic_ref(*word).store(value, std::memory_order_release);
    }));
  }
  void hold(cudaStream_t stream) const override {
    if (!complete()) wait_for_value(stream, counter_.address, value_);
  }

 private:
  Counters::Counter counter_;
  std::uint32_t value_ = 0;
};

class GpuWorker final : public ExecutionStream {
 public:
  GpuWorker(const std::string& thread_name, DeviceWaits& waits)
      : waits_(waits),
        shadow_(create_stream(false, waits)),
        counters_(waits),
        reached_(counters_.take()),
        worker_(thread_name, &waits) {
    int device = 0;
    zero::cuda::call_cuda("cudaGetDevice", cudaGetDevice, &device);
    // Otherwise the thread would make itself a context of the first GPU.
    worker_.enqueue([device, threads = WatchedThreads::of_this_thread()](Stream) {
      WatchedThreads::add(threads);
      call_cuda("cudaSetDevice", cudaSetDevice, device);
    });
    // Said at start rather than in the first step.
    wait_for_value(cuda::native(shadow_->native()), reached_.address, 0);
    write_value(cuda::native(shadow_->native()), reached_.address, 0);
  }

  const char* kind() const override { return worker_.kind(); }
  std::unique_ptr<Event> create_event() override {
    return std::make_unique<CountedEvent>(worker_, counters_.take());
  }
  void enqueue(Work work) override { worker_.enqueue(std::move(work)); }
  void record(Event& event) override { static_cast<CountedEvent&>(event).record(); }
  // A GPU event may be recorded again before the thread reaches this wait. Therefore the shadow
  // stream, which does nothing else, waits for the current record, and then writes the number of
  // this wait to memory. The thread polls that word instead of the event, because a CUDA call may
  // block on the driver's locks while another thread of the program waits inside the driver for
  // work that waits for this thread.
  void wait(Event& event) override {
    if (dynamic_cast<WorkerEvent*>(&event) != nullptr) return worker_.wait(event);
    if (event.complete()) return event.synchronize();
    shadow_->wait(event);
    write_value(cuda::native(shadow_->native()), reached_.address, ++awaited_);
    enqueue([this, number = awaited_](Stream) {
      waits_.await([this, number] {
        const auto written = std::atomic_ref(*reached_.word).load(std::memory_order_acquire);
        return static_cast<std::int32_t>(written - number) >= 0;
      });
    });
  }
  void synchronize() override { worker_.synchronize(); }
  void check() override { worker_.check(); }

 private:
  DeviceWaits& waits_;
  std::unique_ptr<ExecutionStream> shadow_;
  Counters counters_;
  Counters::Counter reached_;  // the newest wait for an event that the GPU has reached
  std::uint32_t awaited_ = 0;  // number of waits so far
  WorkerStream worker_;        // destroyed first
};

}  // namespace

std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name, DeviceWaits& waits) {
  return std::make_unique<GpuWorker>(thread_name, waits);
}

}  // namespace zero::cuda
