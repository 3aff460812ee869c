// Byte positions in typed buffers; 64-bit, since counts may exceed 2^31.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zero::comm {

inline const std::byte* at(const void* base, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}
inline std::byte* at(void* base, std::int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}

// Nothing to do in place, and null is fine where there is nothing to copy.
inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace zero::comm
