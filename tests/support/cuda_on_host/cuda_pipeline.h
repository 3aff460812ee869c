// Asynchronous copies into shared memory, which are done at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  // As the GPU demands: a trap, not a slow copy.
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes != 0)
    __builtin_trap();
  std::memcpy(to, from, bytes);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(std::size_t) {}
