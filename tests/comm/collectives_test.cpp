#include <doctest/doctest.h>

#include "tests/comm/conformance.h"
#include "tests/comm/thread_ranks.h"
#include "tests/support/sweep.h"

namespace zero::comm::testing {
namespace {

Buffers vectors(std::vector<std::byte> (&memory)[2]) {
  return [&memory](int number, std::int64_t bytes) {
    if (static_cast<std::int64_t>(memory[number].size()) < bytes)
      memory[number].resize(static_cast<std::size_t>(bytes));
    return static_cast<void*>(memory[number].data());
  };
}

void run_on_threads(int ranks, const Suite& suite, const ThreadSettings& settings) {
  on_thread_ranks(
      ranks,
      [&](World& world) {
        std::vector<std::byte> memory[2];
        run_suite(world.communicator(), suite, vectors(memory));
      },
      {}, settings);
}

}  // namespace

TEST_CASE("self conforms") {
  const auto world = create_single_world({});
  CHECK(world->communicator().transport() == "self");
  std::vector<std::byte> memory[2];
  CHECK(run_suite(world->communicator(), {}, vectors(memory)) > 100);
  check_splits(world->communicator());
}

TEST_CASE("threads conform, reading in place") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    Suite suite;
    if (ranks > 3) suite.counts = {0, 1, 127, 129, 5003, 40009};
    if (sweep::is_sanitized) suite = {{0, 1, 127, 129, 5003}, {DType::fp32, DType::bf16}};
    CHECK_NOTHROW(run_on_threads(ranks, suite, {}));
  }
}

TEST_CASE("threads conform through a small bounce area") {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    const std::int64_t largest = sweep::is_sanitized ? 3001 : 9001;
    CHECK_NOTHROW(run_on_threads(ranks, {{0, 1, 128, 1000, largest}}, {4096, false}));
    CHECK_NOTHROW(
        run_on_threads(ranks, {{1, 3, 130, 1001}, {DType::bf16, DType::int64}}, {64, false}));
  }
}

TEST_CASE("groups split from thread ranks conform") {
  sweep::Part part(1, 2);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    if (!part.next_is_due()) continue;
    CAPTURE(ranks);
    CHECK_NOTHROW(on_thread_ranks(ranks, [](World& world) { check_splits(world.communicator()); }));
  }
}

}  // namespace zero::comm::testing
