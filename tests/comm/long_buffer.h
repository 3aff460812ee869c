// Gigabytes of address space without the memory: `pieces` views of one piece, and one piece of its
// own at the end.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace zero::comm::testing {

class LongBuffer {
 public:
  static constexpr std::int64_t piece = std::int64_t{1} << 26;

  explicit LongBuffer(std::int64_t pieces) : bytes_((pieces + 1) * piece) {
    const int fd = memfd_create("long", MFD_CLOEXEC);
    require(ftruncate(fd, 2 * piece) == 0);
    void* base = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(base != MAP_FAILED);
    data_ = static_cast<std::byte*>(base);
    for (std::int64_t i = 0; i <= pieces; ++i)
      require(mmap(data_ + i * piece, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   i == pieces ? piece : 0) != MAP_FAILED);
    close(fd);
  }
  ~LongBuffer() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  LongBuffer(const LongBuffer&) = delete;
  LongBuffer& operator=(const LongBuffer&) = delete;

  std::byte* data() { return data_; }
  std::byte* tail() { return data_ + bytes_ - piece; }

 private:
  static void require(bool good) {
    if (!good) throw std::runtime_error("a long buffer cannot be mapped");
  }

  std::int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace zero::comm::testing
