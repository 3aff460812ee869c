// NCCL behind Api. The library is opened when it is first needed, so that programs start without
// it.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/cuda/ordered_sum.h"
#include "comm/nccl/api.h"
#include "comm/nccl/multicast_memory.h"
#include "zero/base/cuda/check.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

namespace {

cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

ncclComm_t native(Handle handle) {
  return static_cast<ncclComm_t>(handle);
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::fp16:
      return ncclFloat16;
    case DType::int64:
      return ncclInt64;
  }
  throw UsageError("NCCL: unknown dtype");
}

// The functions in use, by their own names.
struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommSplit) comm_split;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclCommUserRank) comm_user_rank;
  decltype(&ncclCommCount) comm_count;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommRegister) comm_register;
  decltype(&ncclCommDeregister) comm_deregister;
  decltype(&ncclMemAlloc) mem_alloc;
  decltype(&ncclMemFree) mem_free;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclReduce) reduce;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw TopologyError(std::string("libnccl.so.2 has no ") + name +
                        "; NCCL 2.19 or newer is needed");
}

Functions open_library() {
  // Never closed: NCCL's threads may outlive its communicators.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw TopologyError(std::string("several ranks on GPUs need NCCL: ") + dlerror() +
                        "; install it or add its folder to LD_LIBRARY_PATH");
  Functions f{};
  find(library, "ncclGetVersion", f.get_version);
  find(library, "ncclGetUniqueId", f.get_unique_id);
  find(library, "ncclCommInitRankConfig", f.comm_init_rank_config);
  find(library, "ncclCommSplit", f.comm_split);
  find(library, "ncclCommGetAsyncError", f.comm_get_async_error);
  find(library, "ncclGetErrorString", f.get_error_string);
  find(library, "ncclGetLastError", f.get_last_error);
  find(library, "ncclCommUserRank", f.comm_user_rank);
  find(library, "ncclCommCount", f.comm_count);
  find(library, "ncclCommDestroy", f.comm_destroy);
  find(library, "ncclCommAbort", f.comm_abort);
  find(library, "ncclCommRegister", f.comm_register);
  find(library, "ncclCommDeregister", f.comm_deregister);
  find(library, "ncclMemAlloc", f.mem_alloc);
  find(library, "ncclMemFree", f.mem_free);
  find(library, "ncclGroupStart", f.group_start);
  find(library, "ncclGroupEnd", f.group_end);
  find(library, "ncclSend", f.send);
  find(library, "ncclRecv", f.recv);
  find(library, "ncclAllGather", f.all_gather);
  find(library, "ncclReduceScatter", f.reduce_scatter);
  find(library, "ncclReduce", f.reduce);
  find(library, "ncclAllReduce", f.all_reduce);
  find(library, "ncclBroadcast", f.broadcast);
  return f;
}

// Events for reuse, so that a step creates none.
class EventPool {
 public:
  ~EventPool() {
    for (const cudaEvent_t event : free_)
      zero::cuda::note(cudaEventDestroy(event), "cudaEventDestroy");
  }
  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
    cudaEvent_t event = nullptr;
    zero::cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                      "cudaEventCreateWithFlags");
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

class Mark final : public Event {
 public:
  Mark(std::shared_ptr<EventPool> pool, cudaStream_t stream)
      : pool_(std::move(pool)), event_(pool_->take()) {
    zero::cuda::check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  ~Mark() override { pool_->give_back(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  bool complete() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    zero::cuda::check(state, "cudaEventQuery");
    return true;
  }
  void synchronize() override {
    zero::cuda::check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_;
};

class NcclApi final : public Api {
 public:
  NcclApi() : f_(open_library()) { zero::cuda::check(cudaGetDevice(&device_), "cudaGetDevice"); }

  void attach_thread() override { zero::cuda::check(cudaSetDevice(device_), "cudaSetDevice"); }

  int version() override {
    int number = 0;
    check(f_.get_version(&number), "ncclGetVersion");
    return number;
  }

  Id make_id() override {
    ncclUniqueId native_id;
    check(f_.get_unique_id(&native_id), "ncclGetUniqueId");
    Id id;
    static_assert(sizeof id == sizeof native_id);
    std::memcpy(id.data(), &native_id, sizeof id);
    return id;
  }

  Handle begin_join(const Id& id, int size, int rank) override {
    ncclUniqueId native_id;
    std::memcpy(&native_id, id.data(), sizeof native_id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t communicator = nullptr;
    check(f_.comm_init_rank_config(&communicator, size, native_id, rank, &config),
          "ncclCommInitRankConfig");
    return communicator;
  }

  void begin_split(Handle parent, int color, int key) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.splitShare = 0;
    ncclComm_t* child = nullptr;
    {
      const std::lock_guard lock(mutex_);
      child = &children_[parent];
    }
    check(f_.comm_split(native(parent), color, key, child, &config), "ncclCommSplit");
  }

  Handle finish_split(Handle parent) override {
    const std::lock_guard lock(mutex_);
    return std::exchange(children_[parent], nullptr);
  }

  Progress progress(Handle communicator) override {
    ncclResult_t state = ncclSuccess;
    if (f_.comm_get_async_error(native(communicator), &state) != ncclSuccess)
      return Progress::failed;
    if (state == ncclInProgress) return Progress::going_on;
    return state == ncclSuccess ? Progress::done : Progress::failed;
  }

  std::pair<int, int> place(Handle communicator) override {
    int rank = 0, size = 0;
    check(f_.comm_user_rank(native(communicator), &rank), "ncclCommUserRank");
    check(f_.comm_count(native(communicator), &size), "ncclCommCount");
    return {rank, size};
  }

  std::string last_error(Handle communicator) override {
    ncclResult_t state = ncclSuccess;
    f_.comm_get_async_error(native(communicator), &state);
    return std::string(f_.get_error_string(state)) + " (" + f_.get_last_error(nullptr) + ")";
  }

  void destroy(Handle communicator) override {
    check(f_.comm_destroy(native(communicator)), "ncclCommDestroy");
  }
  void abort(Handle communicator) override {
    check(f_.comm_abort(native(communicator)), "ncclCommAbort");
  }

  bool multicasts() override { return supports_multicast(device_); }
  void* allocate(std::int64_t bytes) override {
    const auto size = static_cast<std::size_t>(bytes);
    void* memory = nullptr;
    const ncclResult_t result = f_.mem_alloc(&memory, size);
    if (result != ncclSuccess) static_cast<void>(cudaGetLastError());
    check(result, "ncclMemAlloc");
    zero::cuda::check(cudaMemset(memory, 0, size), "cudaMemset");
    // The streams of the engine do not wait for the default one.
    zero::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return memory;
  }
  std::int64_t allocated_bytes(void* memory) override { return bytes_of_allocation(memory); }
  void free(void* memory) override { check(f_.mem_free(memory), "ncclMemFree"); }
  void* register_buffer(Handle communicator, void* data, std::int64_t bytes) override {
    void* registration = nullptr;
    check(f_.comm_register(native(communicator), data, static_cast<std::size_t>(bytes),
                           &registration),
          "ncclCommRegister");
    return registration;
  }
  void deregister_buffer(Handle communicator, void* registration) override {
    check(f_.comm_deregister(native(communicator), registration), "ncclCommDeregister");
  }

  void group_start() override { check(f_.group_start(), "ncclGroupStart"); }
  void group_end() override { check(f_.group_end(), "ncclGroupEnd"); }

  void send(const void* data, std::int64_t count, DType dtype, int peer, Handle communicator,
            Stream stream) override {
    check(f_.send(data, static_cast<std::size_t>(count), type_of(dtype), peer, native(communicator),
                  native(stream)),
          "ncclSend");
  }
  void receive(void* data, std::int64_t count, DType dtype, int peer, Handle communicator,
               Stream stream) override {
    check(f_.recv(data, static_cast<std::size_t>(count), type_of(dtype), peer, native(communicator),
                  native(stream)),
          "ncclRecv");
  }
  void all_gather(const void* send, void* recv, std::int64_t count, DType dtype,
                  Handle communicator, Stream stream) override {
    check(f_.all_gather(send, recv, static_cast<std::size_t>(count), type_of(dtype),
                        native(communicator), native(stream)),
          "ncclAllGather");
  }
  void reduce_scatter(const void* send, void* recv, std::int64_t count, DType dtype,
                      Handle communicator, Stream stream) override {
    check(f_.reduce_scatter(send, recv, static_cast<std::size_t>(count), type_of(dtype), ncclSum,
                            native(communicator), native(stream)),
          "ncclReduceScatter");
  }
  void reduce(const void* send, void* recv, std::int64_t count, DType dtype, int root,
              Handle communicator, Stream stream) override {
    check(f_.reduce(send, recv, static_cast<std::size_t>(count), type_of(dtype), ncclSum, root,
                    native(communicator), native(stream)),
          "ncclReduce");
  }
  void all_reduce(void* data, std::int64_t count, DType dtype, Handle communicator,
                  Stream stream) override {
    check(f_.all_reduce(data, data, static_cast<std::size_t>(count), type_of(dtype), ncclSum,
                        native(communicator), native(stream)),
          "ncclAllReduce");
  }
  void broadcast(void* data, std::int64_t count, DType dtype, int root, Handle communicator,
                 Stream stream) override {
    check(f_.broadcast(data, data, static_cast<std::size_t>(count), type_of(dtype), root,
                       native(communicator), native(stream)),
          "ncclBroadcast");
  }

  void ordered_sum(const void* sources, std::int64_t stride, int source_count, int group, void* out,
                   std::int64_t count, DType dtype, Stream stream) override {
    comm::cuda::launch_ordered_sum({sources, stride, source_count, group, out, count, dtype},
                                   native(stream));
  }
  void copy(void* to, const void* from, std::int64_t bytes, Stream stream) override {
    zero::cuda::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                      native(stream)),
                      "cudaMemcpyAsync");
  }
  std::unique_ptr<Event> mark(Stream stream) override {
    return std::make_unique<Mark>(events_, native(stream));
  }

 private:
  // Non-blocking calls say "in progress", which is no error.
  void check(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw Error(std::string(call) + ": " + f_.get_error_string(result) + " (" +
                f_.get_last_error(nullptr) + ")");
  }

  Functions f_;
  int device_ = 0;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  std::mutex mutex_;
  std::map<Handle, ncclComm_t> children_;  // by parent, while a split goes on
};

}  // namespace

std::shared_ptr<Api> load_nccl() {
  static const auto api = std::make_shared<NcclApi>();
  if (api->version() < oldest_version)
    throw TopologyError("NCCL " + std::to_string(api->version()) +
                        " is too old; version 2.19 or newer is needed");
  return api;
}

}  // namespace zero::comm::nccl
