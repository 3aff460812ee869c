// The offset of two ranks' clocks.
#include "comm/ping.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>

#include "tests/comm/thread_ranks.h"

namespace {

constexpr double ahead = 1000;  // seconds

double clock_of_first() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double clock_of_second() {
  return clock_of_first() + ahead;
}

}  // namespace

TEST_CASE("a ping finds the offset of clocks, to within its latency") {
  zero::comm::testing::on_thread_ranks(2, [](zero::comm::World& world) {
    zero::comm::Communicator& pair = world.communicator();
    const bool first = pair.rank() == 0;
    const zero::comm::Ping ping = zero::comm::ping(pair, first ? clock_of_first : clock_of_second);
    if (!first) return;
    constexpr double rounding = 1e-6;
    CHECK(ping.latency_seconds > 0);
    CHECK(std::abs(ping.clock_offset_seconds - ahead) <= ping.latency_seconds + rounding);
  });
}
