// The Api of the real NCCL. The library is opened at first use, so that programs start without it.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "comm/nccl/api.h"
#include "zero/base/cuda/call.h"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/event_pool.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

namespace {

using zero::cuda::native;

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
    case DType::uint8:
      return ncclUint8;
  }
  throw UsageError("NCCL: unknown dtype");
}

void* open_library() {
  // Never closed: NCCL's threads may outlive all communicators.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw TopologyError(std::string("several ranks on GPUs need NCCL: ") + dlerror() +
                        "; install it or add its folder to LD_LIBRARY_PATH");
  return library;
}

// A function of the library, of whatever type is asked for.
struct Symbol {
  Symbol(void* library, const char* name) : address(dlsym(library, name)) {
    if (address == nullptr)
      throw TopologyError(std::string("libnccl.so.2 has no ") + name +
                          "; NCCL 2.19 or newer is needed");
  }
  template <class Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address);
  }
  void* address;
};

struct Functions {
  void* library = open_library();
  decltype(&ncclGetVersion) get_version = Symbol(library, "ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id = Symbol(library, "ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) comm_init_rank_config =
      Symbol(library, "ncclCommInitRankConfig");
  decltype(&ncclCommSplit) comm_split = Symbol(library, "ncclCommSplit");
  decltype(&ncclCommGetAsyncError) comm_get_async_error = Symbol(library, "ncclCommGetAsyncError");
  decltype(&ncclGetErrorString) get_error_string = Symbol(library, "ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error = Symbol(library, "ncclGetLastError");
  decltype(&ncclCommUserRank) comm_user_rank = Symbol(library, "ncclCommUserRank");
  decltype(&ncclCommCount) comm_count = Symbol(library, "ncclCommCount");
  decltype(&ncclCommDestroy) comm_destroy = Symbol(library, "ncclCommDestroy");
  decltype(&ncclCommAbort) comm_abort = Symbol(library, "ncclCommAbort");
  decltype(&ncclCommRegister) comm_register = Symbol(library, "ncclCommRegister");
  decltype(&ncclCommDeregister) comm_deregister = Symbol(library, "ncclCommDeregister");
  decltype(&ncclGroupStart) group_start = Symbol(library, "ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = Symbol(library, "ncclGroupEnd");
  decltype(&ncclSend) send = Symbol(library, "ncclSend");
  decltype(&ncclRecv) recv = Symbol(library, "ncclRecv");
  decltype(&ncclAllGather) all_gather = Symbol(library, "ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter = Symbol(library, "ncclReduceScatter");
  decltype(&ncclReduce) reduce = Symbol(library, "ncclReduce");
  decltype(&ncclAllReduce) all_reduce = Symbol(library, "ncclAllReduce");
  decltype(&ncclBroadcast) broadcast = Symbol(library, "ncclBroadcast");
};

// The library is opened once. Ranks may be threads, which then wait here.
const Functions& functions() {
  static const Functions found;
  return found;
}

class Mark final : public Event {
 public:
  Mark(std::shared_ptr<zero::cuda::EventPool> pool, cudaStream_t stream)
      : pool_(std::move(pool)), event_(pool_->take()) {
    zero::cuda::call_cuda("cudaEventRecord", cudaEventRecord, event_, stream);
  }
  ~Mark() override { pool_->give_back(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  bool complete() const override { return zero::cuda::reached(event_); }
  void synchronize() override {
    zero::cuda::call_cuda("cudaEventSynchronize", cudaEventSynchronize, event_);
  }

 private:
  std::shared_ptr<zero::cuda::EventPool> pool_;
  cudaEvent_t event_;
};

class NcclApi final : public Api {
 public:
  NcclApi() { zero::cuda::call_cuda("cudaGetDevice", cudaGetDevice, &device_); }

  void attach_thread() override {
    zero::cuda::WatchedThreads::add(watched_);
    zero::cuda::call_cuda("cudaSetDevice", cudaSetDevice, device_);
  }

  int version() override {
    int number = 0;
    run("ncclGetVersion", f_.get_version, &number);
    return number;
  }

  Id make_id() override {
    ncclUniqueId native_id;
    run("ncclGetUniqueId", f_.get_unique_id, &native_id);
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
    run("ncclCommInitRankConfig", f_.comm_init_rank_config, &communicator, size, native_id, rank,
        &config);
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
    run("ncclCommSplit", f_.comm_split, native(parent), color, key, child, &config);
  }

  Handle finish_split(Handle parent) override {
    const std::lock_guard lock(mutex_);
    return std::exchange(children_[parent], nullptr);
  }

  Progress progress(Handle communicator) override {
    ncclResult_t state = ncclSuccess;
    const zero::cuda::InCall inside("ncclCommGetAsyncError");
    if (f_.comm_get_async_error(native(communicator), &state) != ncclSuccess)
      return Progress::failed;
    if (state == ncclInProgress) return Progress::going_on;
    return state == ncclSuccess ? Progress::done : Progress::failed;
  }

  std::pair<int, int> place(Handle communicator) override {
    int rank = 0, size = 0;
    run("ncclCommUserRank", f_.comm_user_rank, native(communicator), &rank);
    run("ncclCommCount", f_.comm_count, native(communicator), &size);
    return {rank, size};
  }

  std::string last_error(Handle communicator) override {
    ncclResult_t state = ncclSuccess;
    const zero::cuda::InCall inside("ncclCommGetAsyncError");
    f_.comm_get_async_error(native(communicator), &state);
    return std::string(f_.get_error_string(state)) + " (" + f_.get_last_error(nullptr) + ")";
  }

  void destroy(Handle communicator) override {
    run("ncclCommDestroy", f_.comm_destroy, native(communicator));
  }
  void abort(Handle communicator) override {
    run("ncclCommAbort", f_.comm_abort, native(communicator));
  }

  void* register_buffer(Handle communicator, void* data, std::int64_t bytes) override {
    void* registration = nullptr;
    run("ncclCommRegister", f_.comm_register, native(communicator), data, bytes, &registration);
    return registration;
  }
  void deregister_buffer(Handle communicator, void* registration) override {
    run("ncclCommDeregister", f_.comm_deregister, native(communicator), registration);
  }

  void group_start() override { run("ncclGroupStart", f_.group_start); }
  void group_end() override { run("ncclGroupEnd", f_.group_end); }

  void send(const Vector& v, int peer, const Target& to) override {
    run("ncclSend", f_.send, v.send, v.count, type_of(v.dtype), peer, native(to.communicator),
        native(to.stream));
  }
  void receive(const Vector& v, int peer, const Target& to) override {
    run("ncclRecv", f_.recv, v.recv, v.count, type_of(v.dtype), peer, native(to.communicator),
        native(to.stream));
  }
  void all_gather(const Vector& v, const Target& to) override {
    run("ncclAllGather", f_.all_gather, v.send, v.recv, v.count, type_of(v.dtype),
        native(to.communicator), native(to.stream));
  }
  void reduce_scatter(const Vector& v, const Target& to) override {
    run("ncclReduceScatter", f_.reduce_scatter, v.send, v.recv, v.count, type_of(v.dtype), ncclSum,
        native(to.communicator), native(to.stream));
  }
  void reduce(const Vector& v, int root, const Target& to) override {
    run("ncclReduce", f_.reduce, v.send, v.recv, v.count, type_of(v.dtype), ncclSum, root,
        native(to.communicator), native(to.stream));
  }
  void all_reduce(const Vector& v, const Target& to) override {
    run("ncclAllReduce", f_.all_reduce, v.send, v.recv, v.count, type_of(v.dtype), ncclSum,
        native(to.communicator), native(to.stream));
  }
  void broadcast(const Vector& v, int root, const Target& to) override {
    run("ncclBroadcast", f_.broadcast, v.send, v.recv, v.count, type_of(v.dtype), root,
        native(to.communicator), native(to.stream));
  }

  void ordered_sum(const comm::cuda::OrderedSum& sum, Stream stream) override {
    comm::cuda::launch_ordered_sum(sum, stream);
  }
  void copy(void* to, const void* from, std::int64_t bytes, Stream stream) override {
    zero::cuda::copy_async(to, from, bytes, native(stream));
  }
  std::unique_ptr<Event> mark(Stream stream) override {
    return std::make_unique<Mark>(events_, native(stream));
  }

 private:
  // Runs under the device's watch, like CUDA calls.
  template <class... Parameters>
  void run(const char* call, ncclResult_t (*function)(Parameters...),
           std::type_identity_t<Parameters>... arguments) {
    const zero::cuda::InCall inside(call);
    check(function(arguments...), call);
  }
  // Non-blocking calls return "in progress", which is no error.
  void check(ncclResult_t result, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw Error(std::string(call) + ": " + f_.get_error_string(result) + " (" +
                f_.get_last_error(nullptr) + ")");
  }

  const Functions& f_ = functions();
  int device_ = 0;  // of the thread that has made this
  std::shared_ptr<zero::cuda::WatchedThreads> watched_ =
      zero::cuda::WatchedThreads::of_this_thread();
  std::shared_ptr<zero::cuda::EventPool> events_ = std::make_shared<zero::cuda::EventPool>();
  std::mutex mutex_;
  std::map<Handle, ncclComm_t> children_;  // by parent, during a split
};

}  // namespace

std::shared_ptr<Api> load_nccl() {
  const auto api = std::make_shared<NcclApi>();
  if (api->version() < oldest_version)
    throw TopologyError("NCCL " + std::to_string(api->version()) +
                        " is too old; version 2.19 or newer is needed");
  return api;
}

}  // namespace zero::comm::nccl
