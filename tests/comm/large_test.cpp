// Counts beyond 2^31, without the memory: the middle of each buffer is a few pages mapped
// repeatedly.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/comm/long_buffer.h"
#include "tests/comm/thread_ranks.h"

namespace zero::comm::testing {
namespace {

constexpr std::int64_t piece = LongBuffer::piece;

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
