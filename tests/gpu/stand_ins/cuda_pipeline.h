// Asynchronous copies into shared memory, executed immediately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  // The GPU demands alignment, so this traps instead of copying slowly.
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes != 0)
    __builtin_trap();
  std::memcpy(to, from, bytes);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(std::size_t) {}
