// A reservation of memory, divided once at start and touched before the first step, so that the
// size is known and no memory is taken from the system during a step. Shared arenas are memfd
// files: peers on the node map these to read gradients and parameters in place, and no named file
// can be left over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zero {

class Arena {
 public:
  enum class Sharing { private_memory, node };

  Arena() = default;
  // Checks the bytes against free memory and the cgroup's limit, reserves, advises huge pages and
  // touches every page. Throws MemoryError with the figures.
  Arena(std::int64_t bytes, Sharing sharing, const std::string& name);
  // Does the same without touching the pages: take_pages() does.
  static Arena untouched(std::int64_t bytes, Sharing sharing, const std::string& name);
  // Wraps existing zeroed memory, such as a device's. The deleter releases the memory.
  Arena(std::shared_ptr<void> memory, std::int64_t bytes);
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = default;

  // Touches every page of an untouched arena, once. Throws MemoryError with the figures.
  void take_pages();
  // Bytes of this process's arenas that are still untouched: free memory by Linux's count, but not
  // available.
  static std::int64_t untouched_bytes();

  // Returns the next `bytes`, aligned to 256 and zeroed; throws std::logic_error beyond the
  // reservation.
  void* take(std::int64_t bytes);
  // Bytes that take() needs in the reservation for a request.
  static std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  std::int64_t size() const { return memory_ ? size_ : 0; }
  // The memfd of a shared arena, owned by the arena; -1 for a private arena.
  int fd() const { return fd_; }

 private:
  void reserve(std::int64_t bytes, Sharing sharing, const std::string& name);

  std::shared_ptr<void> memory_;
  std::int64_t size_ = 0;
  std::int64_t taken_ = 0;
  int fd_ = -1;
  // Counts the pages until taken.
  struct Untouched;
  std::shared_ptr<Untouched> untouched_;
};

// The host's free memory, or ZERO_AVAILABLE_GIB; -1: unknown. Throws ConfigError.
std::int64_t free_memory();
// Bytes still available on this host: free memory, capped by the limits of this process's cgroups.
// Page cache counts as free in both. The environment variable ZERO_AVAILABLE_GIB replaces Linux's
// figure, because the memory of some virtual machines grows with use. Throws ConfigError if the
// variable is not a number.
std::int64_t available_memory();
// "this host has 1.50 GiB left", and how to override that.
std::string memory_left_text();
// Bytes that this process may still map under the limit of address space (ulimit -v).
std::int64_t address_space_left();
// This process's resident bytes of data, shared pages counted by share (PSS). Pages of files
// (programs, libraries) are not counted: a process's share of these grows when another program that
// maps the same library ends.
std::int64_t resident_data_bytes();

}  // namespace zero
