// A regular file mapped read-only. Pages are read when touched; a file that another process
// shortens meanwhile ends the program (SIGBUS), as with every mapping.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace zero::checkpoint {

class MappedFile {
 public:
  // Throws LoadError naming the path. Never blocks on a FIFO or device.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace zero::checkpoint
