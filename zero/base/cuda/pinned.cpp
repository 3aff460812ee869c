#include "zero/base/cuda/pinned.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "zero/base/arena.h"
#include "zero/base/cuda/check.h"
#include "zero/base/error.h"
#include "zero/base/notice.h"
#include "zero/base/numa.h"

namespace zero::cuda {

namespace {

// Drivers on some hosts count what they pin.
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

}  // namespace

std::shared_ptr<void> allocate_pinned(std::int64_t bytes, int numa_node, const std::string& name,
                                      const DeviceWaits& waits) {
  if (bytes == 0) return nullptr;
  const std::string what = "cannot pin " + std::to_string(bytes) + " bytes for " + name + ": ";
  if (bytes > available_memory())
    throw MemoryError(what + "this host has " + std::to_string(available_memory()) + " left");
  const auto size = static_cast<std::size_t>(bytes);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw MemoryError(what + std::strerror(errno));
  const std::shared_ptr<void> mapped(data, Unmap{size, waits});
  if (const std::string why = prefer_numa_node(data, bytes, numa_node); !why.empty())
    warn_once("pinned memory is not placed beside the GPU: " + why);
  std::memset(data, 0, size);
  if (const cudaError_t error = cudaHostRegister(data, size, cudaHostRegisterPortable);
      error != cudaSuccess) {
    note(error, "cudaHostRegister");
    throw MemoryError(what + cudaGetErrorString(error) + "; " + limit_of_locked_memory() +
                      ", and this host has " + std::to_string(available_memory()) + " left");
  }
  // Unregistered before the mapping goes.
  return {data, [mapped, &waits](void* pinned) {
            if (!waits.stalled()) note(cudaHostUnregister(pinned), "cudaHostUnregister");
          }};
}

}  // namespace zero::cuda
