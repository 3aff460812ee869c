#include "zero/base/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "zero/base/error.h"

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
        // All work is done when the call returns.
        if (own.front() != round + 1 || own.back() != round + 1) return;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& own : done) CHECK(own == std::vector<int>(1000, rounds));
}

TEST_CASE("too few threads are an error, and those that were started end") {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    // Drops root, since limits on processes do not apply to it.
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(0);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NPROC, &none);
    try {
      zero::ThreadPool pool(3);
    } catch (const zero::TopologyError& error) {
      const std::string text = error.what();
      ::_exit(text.find("compute thread 2 of 3") != std::string::npos &&
                      text.find("ulimit -u") != std::string::npos
                  ? 0
                  : 1);
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
