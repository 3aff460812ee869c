// Memory without a name: a memfd, reserved and mapped. Processes that hold the descriptor map it
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace zero::comm {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A mapping; the descriptor may be closed.
class Mapping {
 public:
  enum class Access { read, read_write };

  Mapping() = default;
  // The whole file, its pages entered in the page table at once.
  Mapping(int fd, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

// A zeroed memfd of that size with all its pages taken. Throws MemoryError with the figures.
UniqueFd create_shared_memory(const char* name, std::int64_t bytes);

}  // namespace zero::comm
