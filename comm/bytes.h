// Byte positions in typed buffers, in 64 bits since counts may exceed 2^31, and copies between
// buffers.
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

// Copies of at least this size bypass the caches: the data would not stay there, and a line that is
// written as a whole need not be read first.
inline constexpr std::int64_t streaming_bytes = 4 * 1024 * 1024;
void copy_streaming(void* to, const void* from, std::int64_t bytes);

// Copies nothing if the buffers are the same; null is allowed if there are no bytes.
inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes <= 0 || to == from) return;
  if (bytes >= streaming_bytes) return copy_streaming(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace zero::comm
