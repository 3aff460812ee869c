// Where an engine's buffers live and what moves bytes in them: the host itself, or one GPU. Owned
// by the Runtime. Streams and memory of a device are used by the ranks' own threads; a device
// outlives what it made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/base/arena.h"
#include "zero/base/stream.h"

namespace zero {

class Device {
 public:
  virtual ~Device() = default;
  // "cpu", "cuda".
  virtual const char* kind() const = 0;
  // Buffers are host memory, and what is asked of a stream has happened when the call returns (or
  // when that stream's worker has run it).
  virtual bool is_host() const = 0;

  // Zeroed; its whole size is taken now. Throws MemoryError with the figures.
  virtual Arena reserve(std::int64_t bytes, Arena::Sharing sharing, const std::string& name) = 0;
  // Host memory, zeroed, that copies to and from the device reach without a bounce.
  virtual Arena reserve_pinned(std::int64_t bytes, const std::string& name) = 0;

  // In the order of the stream, whose work calls these. Buffers do not overlap.
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  virtual void fill_zero(void* to, std::int64_t bytes, Stream stream) = 0;
};

// The host. One for the process.
Device& host_device();

}  // namespace zero
