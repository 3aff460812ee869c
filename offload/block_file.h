// A preallocated file without a name: deleted when the process ends, even by a crash, and two jobs
// that use the same folder cannot collide. Opened with O_DIRECT if the file system supports that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::offload {

// Alignment of offsets, sizes and memory that O_DIRECT requires on every disk.
inline constexpr std::int64_t alignment_bytes = 4096;

constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
}

class BlockFile {
 public:
  // Throws ConfigError if the directory is unusable or in memory (tmpfs), MemoryError if the file
  // system has too little space, TopologyError if no more files may be open.
  BlockFile(const std::string& directory, std::int64_t bytes);
  BlockFile(const BlockFile&) = delete;
  ~BlockFile();

  int descriptor() const { return fd_; }
  // A line for each requested feature that the system does not have.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  void check_directory() const;
  int open_nameless(int flags);
  void open();
  void reserve(std::int64_t bytes) const;

  std::string directory_;
  int fd_ = -1;
  std::vector<std::string> notices_;
};

}  // namespace zero::offload
