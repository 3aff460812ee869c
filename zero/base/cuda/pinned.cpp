#include "zero/base/cuda/pinned.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "zero/base/arena.h"
#include "zero/base/cuda/call.h"
#include "zero/base/error.h"
#include "zero/base/notice.h"
#include "zero/base/numa.h"

namespace zero::cuda {

namespace {

// Drivers on some hosts count pinned memory against this limit.
std::string limit_of_locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return "this process may lock " +
         (limit.rlim_cur == RLIM_INFINITY ? "any number of" : std::to_string(limit.rlim_cur)) +
         " bytes (ulimit -l)";
}

struct Unmap {
  std::size_t bytes;
  const DeviceWaits& waits;
  void operator()(void* data) const {
    if (!waits.stalled()) munmap(data, bytes);
  }
};

// Maps pages and places these on the node before locking. Returns null if CUDA refuses to lock the
// pages, with the reason in `refusal`.
std::shared_ptr<void> register_mapping(std::int64_t bytes, int numa_node, const std::string& what,
                                       std::string& refusal, const DeviceWaits& waits) {
  const auto size = static_cast<std::size_t>(bytes);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw MemoryError(what + std::strerror(errno));
  const std::shared_ptr<void> mapped(data, Unmap{size, waits});
  if (const std::string why = prefer_numa_node(data, bytes, numa_node); !why.empty())
    warn_once("pinned memory is not on the NUMA node of the GPU: " + why);
  std::memset(data, 0, size);
  if (const cudaError_t error =
          result_of("cudaHostRegister", cudaHostRegister, data, size, cudaHostRegisterPortable);
      error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    refusal = std::string("cudaHostRegister: ") + cudaGetErrorString(error);
    return nullptr;
  }
  // Unregister before the mapping is removed.
  return {data, [mapped, &waits](void* pinned) {
            if (!waits.stalled())
              call_cuda_quietly("cudaHostUnregister", cudaHostUnregister, pinned);
          }};
}

}  // namespace

std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name,
                                      const DeviceWaits& waits) {
  if (bytes == 0) return nullptr;
  const std::string what = "cannot pin " + std::to_string(bytes) + " bytes for " + name + ": ";
  if (bytes > available_memory()) throw MemoryError(what + memory_left_text());
  std::string refusal;
  if (auto registered = register_mapping(bytes, numa_node, what, refusal, waits)) return registered;
  // Some drivers and containers refuse to pin memory mapped by the program, but can allocate pinned
  // memory.
  void* data = nullptr;
  if (const cudaError_t error =
          result_of("cudaHostAlloc", cudaHostAlloc, &data, bytes, cudaHostAllocPortable);
      error != cudaSuccess) {
    note(error, "cudaHostAlloc");
    throw MemoryError(what + refusal + "; cudaHostAlloc: " + cudaGetErrorString(error) + "; " +
                      limit_of_locked_memory() + ", and " + memory_left_text());
  }
  std::memset(data, 0, bytes);
  warn_once(
      "page-locked memory comes from cudaHostAlloc and is not on the NUMA node of the GPU, since " +
      refusal);
  return {data, [&waits](void* pinned) {
            if (!waits.stalled()) call_cuda_quietly("cudaFreeHost", cudaFreeHost, pinned);
          }};
}

}  // namespace zero::cuda
