// Counts beyond 2^31, without the memory: the middle of each buffer is a few pages mapped again and
// again.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/comm/thread_ranks.h"

namespace zero::comm::testing {
namespace {

constexpr std::int64_t piece = std::int64_t{1} << 26;

// `pieces` views of one piece, and one piece of its own at the end.
class LongBuffer {
 public:
  explicit LongBuffer(std::int64_t pieces) : bytes_((pieces + 1) * piece) {
    const int fd = memfd_create("long", MFD_CLOEXEC);
    REQUIRE(ftruncate(fd, 2 * piece) == 0);
    void* base = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(base != MAP_FAILED);
    data_ = static_cast<std::byte*>(base);
    for (std::int64_t i = 0; i <= pieces; ++i)
      REQUIRE(mmap(data_ + i * piece, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   i == pieces ? piece : 0) != MAP_FAILED);
    close(fd);
  }
  ~LongBuffer() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  LongBuffer(const LongBuffer&) = delete;
  LongBuffer& operator=(const LongBuffer&) = delete;

  std::byte* data() { return data_; }
  std::byte* tail() { return data_ + bytes_ - piece; }

 private:
  std::int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace

TEST_CASE("a broadcast of more than 2^31 elements reaches the last one") {
  constexpr std::int64_t tail = 1001;
  constexpr std::int64_t count = (std::int64_t{1} << 31) + tail;
  for (const bool in_place : {true, false}) {
    on_thread_ranks(
        2,
        [&](World& world) {
          LongBuffer buffer((std::int64_t{1} << 32) / piece);
          const int rank = world.communicator().rank();
          std::memset(buffer.data(), rank == 0 ? 1 : 9, piece);
          std::memset(buffer.tail(), rank == 0 ? 2 : 9, piece);
          world.communicator().broadcast(buffer.data(), count, DType::bf16, 0);
          CHECK(buffer.data()[0] == std::byte{1});
          CHECK(buffer.data()[piece - 1] == std::byte{1});
          CHECK(buffer.tail()[0] == std::byte{2});
          CHECK(buffer.tail()[2 * tail - 1] == std::byte{2});
          CHECK(buffer.tail()[2 * tail] == (rank == 0 ? std::byte{2} : std::byte{9}));
          CHECK(world.communicator().traffic().bytes_sent[3] == (rank == 0 ? 2 * count : 0));
        },
        {}, {1 << 20, in_place});
  }
}

}  // namespace zero::comm::testing
