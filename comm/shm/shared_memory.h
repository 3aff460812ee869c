// Memory without a name: a memfd, reserved and mapped. Other processes map it through its
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

enum class Access { read, read_write };

// Maps the whole file and populates its page table entries at once; the descriptor may be closed.
std::shared_ptr<std::byte> map_memory(int fd, Access access);

// Creates a zeroed memfd of that size with all its pages allocated. Throws MemoryError with the
// sizes.
UniqueFd create_shared_memory(const char* name, std::int64_t bytes);

}  // namespace zero::comm
