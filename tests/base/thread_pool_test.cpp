#include "zero/base/cpu/thread_pool.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

using namespace zero;

TEST_CASE("several threads may give a pool work, and each gets all of its own done") {
  constexpr int callers = 3, rounds = 200;
  ThreadPool pool(3);
  std::vector<std::vector<int>> done(callers, std::vector<int>(1000, 0));
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller)
    threads.emplace_back([&pool, &own = done[static_cast<std::size_t>(caller)]] {
      for (int round = 0; round < rounds; ++round) {
        pool.for_ranges(std::ssize(own), 7, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++own[static_cast<std::size_t>(i)];
        });
        // What has been asked for has been done when the call returns.
        if (own.front() != round + 1 || own.back() != round + 1) return;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& own : done) CHECK(own == std::vector<int>(1000, rounds));
}
