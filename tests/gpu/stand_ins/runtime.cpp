#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "cuda_runtime_api.h"

struct CUstream_st {
  int device;
};
struct CUevent_st {
  bool timed;
  std::int64_t bytes_before = -1;  // bytes copied when it was recorded
  bool held = false;
};

namespace {

constexpr int device_count = 2;
constexpr std::size_t memory_of_device = std::size_t{4} << 30;
constexpr std::size_t most_pinned = std::size_t{256} << 20;
constexpr unsigned char unset = 0xa5;

// The number of calls by name, and the fault of one of them.
struct Faults {
  std::mutex mutex;
  std::map<std::string, int> calls;
  std::string name;
  CallFault fault;
};
Faults& faults() {
  static Faults all;
  return all;
}

// Memory that copies reach without waiting inside the call, by address.
struct Ranges {
  std::mutex mutex;
  std::map<const char*, std::size_t> sizes;

  void add(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    sizes[static_cast<const char*>(data)] = bytes;
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex);
    sizes.erase(static_cast<const char*>(data));
  }
  bool contain(const void* data) {
    const std::lock_guard lock(mutex);
    const auto* at = static_cast<const char*>(data);
    auto after = sizes.upper_bound(at);
    if (after == sizes.begin()) return false;
    --after;
    return at < after->first + after->second;
  }
};
Ranges& known_memory() {
  static Ranges all;
  return all;
}

// Like the driver's CU_STREAM_WAIT_VALUE_GEQ.
int wait_for_value(cudaStream_t, unsigned long long address, std::uint32_t value, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cuStreamWaitValue32")) return fault;
  const std::atomic_ref word(*reinterpret_cast<std::uint32_t*>(address));
  while (static_cast<std::int32_t>(word.load(std::memory_order_acquire) - value) < 0)
    std::this_thread::yield();
  return 0;
}

std::atomic<bool> holding{false}, refusing_records{false}, refusing_registration{false},
    old_driver{false};

// A held device does not reach the write.
int write_value(cudaStream_t, unsigned long long address, std::uint32_t value, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cuStreamWriteValue32")) return fault;
  if (!holding)
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address))
        .store(value, std::memory_order_release);
  return 0;
}

void refuse_to_wait(const char* call) {
  if (!holding) return;
  std::fprintf(stderr, "%s would wait for ever\n", call);
  std::abort();
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::int64_t bytes_copied = 0;

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

namespace cuda_on_host {

cudaError_t met(const char* call) {
  Faults& all = faults();
  std::unique_lock lock(all.mutex);
  const int number = ++all.calls[call];
  if (all.name != call || number < all.fault.first || number > all.fault.last) return cudaSuccess;
  if (!all.fault.never_returns) return noted(all.fault.error);
  lock.unlock();
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

}  // namespace cuda_on_host

void set_fault(const char* call, const CallFault& fault) {
  const std::lock_guard lock(faults().mutex);
  faults().name = call;
  faults().fault = fault;
}
std::map<std::string, int> calls_so_far() {
  const std::lock_guard lock(faults().mutex);
  return faults().calls;
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : error == cudaErrorInvalidDevice  ? "cudaErrorInvalidDevice"
         : error == cudaErrorLaunchFailure  ? "cudaErrorLaunchFailure"
                                            : "cudaError";
}
const char* cudaGetErrorString(cudaError_t) {
  return "as on a GPU";
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  if (const cudaError_t fault = cuda_on_host::met("cudaDriverGetVersion")) return fault;
  *version = old_driver ? 12040 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  if (const cudaError_t fault = cuda_on_host::met("cudaRuntimeGetVersion")) return fault;
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t fault = cuda_on_host::met("cudaGetDeviceCount")) return fault;
  if (old_driver) return noted(cudaErrorInsufficientDriver);
  *count = device_count;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t fault = cuda_on_host::met("cudaSetDevice")) return fault;
  if (device < 0 || device >= device_count) return noted(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t fault = cuda_on_host::met("cudaGetDevice")) return fault;
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t fault = cuda_on_host::met("cudaGetDeviceProperties")) return fault;
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "host as a GPU");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* bus, int length, int device) {
  if (const cudaError_t fault = cuda_on_host::met("cudaDeviceGetPCIBusId")) return fault;
  std::strncpy(bus, device == 0 ? "0000FFFF:00:00.0" : "0000FFFF:01:00.0",
               static_cast<std::size_t>(length));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t fault = cuda_on_host::met("cudaDeviceGetStreamPriorityRange")) return fault;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (const cudaError_t fault = cuda_on_host::met("cudaDeviceGetAttribute")) return fault;
  constexpr int reserved = 1 << 10;
  *value = attribute == cudaDevAttrReservedSharedMemoryPerBlock ? reserved
           : attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor
               ? 2 * (most_shared_memory + reserved)
               : most_shared_memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t fault = cuda_on_host::met("cudaDeviceSynchronize")) return fault;
  refuse_to_wait("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  if (const cudaError_t fault = cuda_on_host::met("cudaMemGetInfo")) return fault;
  *available = *total = memory_of_device;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (const cudaError_t fault = cuda_on_host::met("cudaMalloc")) return fault;
  if (bytes > memory_of_device) return noted(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr) return noted(cudaErrorMemoryAllocation);
  std::memset(*data, unset, bytes);
  known_memory().add(*data, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t fault = cuda_on_host::met("cudaFree")) return fault;
  refuse_to_wait("cudaFree");
  known_memory().remove(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cudaHostRegister")) return fault;
  const bool refused = refusing_registration || bytes > most_pinned;
  if (refused) return noted(cudaErrorMemoryAllocation);
  known_memory().add(data, bytes);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* data) {
  if (const cudaError_t fault = cuda_on_host::met("cudaHostUnregister")) return fault;
  refuse_to_wait("cudaHostUnregister");
  known_memory().remove(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cudaHostAlloc")) return fault;
  *data = bytes > most_pinned ? nullptr : std::malloc(bytes);
  if (*data == nullptr) return noted(cudaErrorMemoryAllocation);
  std::memset(*data, unset, bytes);
  known_memory().add(*data, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t fault = cuda_on_host::met("cudaFreeHost")) return fault;
  refuse_to_wait("cudaFreeHost");
  known_memory().remove(data);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** mapped, void* data, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cudaHostGetDevicePointer")) return fault;
  *mapped = data;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  if (const cudaError_t fault = cuda_on_host::met("cudaMemset")) return fault;
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  if (const cudaError_t fault = cuda_on_host::met("cudaMemsetAsync")) return fault;
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  if (const cudaError_t fault = cuda_on_host::met("cudaMemcpyAsync")) return fault;
  if (holding && !(known_memory().contain(to) && known_memory().contain(from)))
    refuse_to_wait("cudaMemcpyAsync of memory that is not page-locked");
  if (bytes > 0) std::memcpy(to, from, bytes);
  bytes_copied += static_cast<std::int64_t>(bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamCreateWithPriority")) return fault;
  *stream = new CUstream_st{current_device};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamDestroy")) return fault;
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamGetDevice")) return fault;
  *device = stream == nullptr ? current_device : stream->device;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamSynchronize")) return fault;
  refuse_to_wait("cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamQuery")) return fault;
  return holding ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t work, void* data) {
  if (const cudaError_t fault = cuda_on_host::met("cudaLaunchHostFunc")) return fault;
  work(data);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  if (const cudaError_t fault = cuda_on_host::met("cudaStreamWaitEvent")) return fault;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventCreateWithFlags")) return fault;
  *event = new CUevent_st{flags != cudaEventDisableTiming};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventDestroy")) return fault;
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventRecord")) return fault;
  if (refusing_records) return noted(cudaErrorInvalidResourceHandle);
  event->bytes_before = bytes_copied;
  event->held = holding;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventQuery")) return fault;
  return event->held && holding ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventSynchronize")) return fault;
  if (event->held) refuse_to_wait("cudaEventSynchronize");
  return cudaSuccess;
}
void hold_devices(bool hold) {
  holding = hold;
}
void use_old_driver(bool old) {
  old_driver = old;
}
void refuse_registration(bool refuse) {
  refusing_registration = refuse;
}
void refuse_records(bool refuse) {
  refusing_records = refuse;
}
void pass_time(float milliseconds) {
  bytes_copied += static_cast<std::int64_t>(milliseconds * 1e6f);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (const cudaError_t fault = cuda_on_host::met("cudaEventElapsedTime")) return fault;
  const bool recorded = start->bytes_before >= 0 && end->bytes_before >= 0;
  if (!start->timed || !end->timed || !recorded) return noted(cudaErrorInvalidResourceHandle);
  *milliseconds = static_cast<float>(end->bytes_before - start->bytes_before) * 1e-6f;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  if (const cudaError_t fault = cuda_on_host::met("cudaGetDriverEntryPointByVersion")) return fault;
  const bool waits = std::strcmp(symbol, "cuStreamWaitValue32") == 0;
  const bool writes = std::strcmp(symbol, "cuStreamWriteValue32") == 0;
  *function = waits    ? reinterpret_cast<void*>(wait_for_value)
              : writes ? reinterpret_cast<void*>(write_value)
                       : nullptr;
  *result = waits || writes ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
