// The CUDA implementation of Device. Memory is one cudaMalloc per arena, zeroed at start.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "zero/base/cuda/call.h"
#include "zero/base/cuda/call_watch.h"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/gpu_worker.h"
#include "zero/base/cuda/pinned.h"
#include "zero/base/error.h"
#include "zero/base/gpu.h"
#include "zero/base/numa.h"
#include "zero/base/number_text.h"

namespace zero {

namespace {

using cuda::call_cuda;

struct FreeDevice {
  const DeviceWaits& waits;
  void operator()(void* data) const {
    if (!waits.stalled()) cuda::call_cuda_quietly("cudaFree", cudaFree, data);
  }
};

// Called on a CUDA thread.
void CUDART_CB run_owned(void* owned) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(owned));
  (*work)();
}

// Without may_exit, the thread stays inside the call; peers and users get the reason.
cuda::CallWatch::GiveUp ending_of(bool may_exit) {
  return [may_exit](int code, const std::string& text) {
    std::fprintf(stderr, "zero: %s\n", text.c_str());
    std::fflush(nullptr);
    if (may_exit) _exit(code);
  };
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int number, bool may_exit) : number_(number), watch_(waits(), ending_of(may_exit)) {
    call_cuda("cudaSetDevice", cudaSetDevice, number);
    call_cuda("cudaGetDeviceProperties", cudaGetDeviceProperties, &properties_, number);
    char bus[32] = {};
    call_cuda("cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId, bus, sizeof bus, number);
    numa_node_ = numa_node_of_pci(bus);
  }

  const char* kind() const override { return "cuda"; }
  std::string describe() const override {
    return std::string(properties_.name) + " (GPU " + std::to_string(number_) + ")";
  }
  bool is_host() const override { return false; }
  std::array<std::int64_t, 2> identity() const override {
    std::array<std::int64_t, 2> words;
    static_assert(sizeof words == sizeof properties_.uuid);
    std::memcpy(words.data(), &properties_.uuid, sizeof words);
    return words;
  }

  int gpu() const override { return number_; }
  int numa_node() const override { return numa_node_; }

  std::unique_ptr<ExecutionStream> create_stream(Role role) override {
    return cuda::create_stream(role == Role::communication, waits());
  }
  std::unique_ptr<ExecutionStream> create_worker(const std::string& thread_name) override {
    return cuda::create_worker(thread_name, waits());
  }
  std::unique_ptr<ExecutionStream> borrow_stream(Stream stream) override {
    const auto handle = cuda::native(stream);
    int owner = -1;
    call_cuda("cudaStreamGetDevice", cudaStreamGetDevice, handle, &owner);
    if (owner != number_)
      throw UsageError("RuntimeOptions::stream belongs to GPU " + std::to_string(owner) +
                       ", but this rank uses GPU " + std::to_string(number_) +
                       " (its local rank modulo the visible GPUs); make the stream there");
    return cuda::borrow_stream(handle, waits());
  }
  std::optional<std::int64_t> free_bytes() const override {
    std::size_t available = 0, total = 0;
    call_cuda("cudaMemGetInfo", cudaMemGetInfo, &available, &total);
    return static_cast<std::int64_t>(available);
  }
  std::unique_ptr<StreamTimer> create_timer() override { return cuda::create_timer(); }

  Arena reserve(std::int64_t bytes, Arena::Sharing, const std::string& name) override {
    const std::int64_t size = Arena::rounded(bytes);
    if (size == 0) return {};
    const auto count = static_cast<std::size_t>(size);
    std::size_t available = 0, total = 0;
    call_cuda("cudaMemGetInfo", cudaMemGetInfo, &available, &total);
    void* data = nullptr;
    cudaError_t state = cudaErrorMemoryAllocation;
    if (count <= available) state = cuda::result_of("cudaMalloc", cudaMalloc, &data, count);
    if (state != cudaErrorMemoryAllocation) cuda::check(state, "cudaMalloc");
    if (state != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      throw MemoryError("cannot reserve " + byte_text(count) + " for " + name + ": " + describe() +
                        " has " + byte_text(available) + " of " + byte_text(total) +
                        " left; use a higher ZeRO stage, more ranks or a smaller batch");
    }
    std::shared_ptr<void> memory(data, FreeDevice{waits()});
    call_cuda("cudaMemset", cudaMemset, data, 0, count);
    // Non-blocking: the engine's streams do not wait for the default stream.
    cuda::borrow_stream(nullptr, waits())->synchronize();
    return {std::move(memory), size};
  }

  Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    const std::int64_t size = Arena::rounded(bytes);
    return {cuda::allocate_pinned(size, numa_node_, name, waits()), size};
  }

  void copy(void* to, const void* from, std::int64_t bytes, Stream stream) override {
    cuda::copy_async(to, from, bytes, cuda::native(stream));
  }
  void fill_zero(void* to, std::int64_t bytes, Stream stream) override {
    call_cuda("cudaMemsetAsync", cudaMemsetAsync, to, 0, bytes, cuda::native(stream));
  }
  void call(std::function<void()> work, Stream stream) override {
    auto owned = std::make_unique<std::function<void()>>(std::move(work));
    call_cuda("cudaLaunchHostFunc", cudaLaunchHostFunc, cuda::native(stream), run_owned,
              owned.get());
    owned.release();
  }

  std::uint64_t begin_range(const std::string& name) override {
    return nvtxRangeStartA(name.c_str());
  }
  void end_range(std::uint64_t range) override { nvtxRangeEnd(range); }

 private:
  int number_;
  int numa_node_ = -1;
  cudaDeviceProp properties_{};
  cuda::CallWatch watch_;
};

}  // namespace

int gpu_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

namespace {

// The oldest driver that runs a CUDA runtime of this major version (CUDA Toolkit release notes,
// table 2).
const char* driver_for(int runtime) {
  return runtime >= 13000 ? "580" : runtime >= 12000 ? "525" : "450";
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string old_driver_text() {
  int driver = 0, runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  return "device cuda: the NVIDIA driver of this machine is for CUDA " + version_text(driver) +
         ", and this program needs CUDA " + version_text(runtime) + ": install driver " +
         driver_for(runtime) + " or newer, or use device cpu";
}

}  // namespace

bool driver_is_too_old() noexcept {
  int count = 0;
  const cudaError_t state = cudaGetDeviceCount(&count);
  if (state != cudaSuccess) static_cast<void>(cudaGetLastError());
  int driver = 0;  // stays 0 without a driver, although CUDA then reports an old driver
  static_cast<void>(cudaDriverGetVersion(&driver));
  return state == cudaErrorInsufficientDriver && driver > 0;
}

std::unique_ptr<Device> create_gpu(int local_rank, bool may_exit) {
  if (driver_is_too_old()) throw TopologyError(old_driver_text());
  int count = 0;
  const cudaError_t state = cudaGetDeviceCount(&count);
  if (state != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    throw TopologyError(std::string("device cuda: this process sees no GPU (") +
                        cudaGetErrorString(state == cudaSuccess ? cudaErrorNoDevice : state) +
                        "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu");
  }
  return std::make_unique<CudaDevice>(local_rank % count, may_exit);
}

}  // namespace zero
