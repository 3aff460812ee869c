#include "zero/testing.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "zero/base/hash.h"
#include "zero/runtime/outcome.h"
#include "zero/runtime/runtime_core.h"

namespace zero {

namespace {

std::atomic<int> delay_limit{0};
std::atomic<std::uint64_t> delay_state{0};

}  // namespace

void detail::maybe_delay() {
  const int limit = delay_limit.load(std::memory_order_relaxed);
  if (limit == 0) return;
  // A single counter for all threads: the assignment of delays to threads is random on purpose.
  const std::uint64_t draw =
      mixed(delay_state.fetch_add(0x9e3779b97f4a7c15u, std::memory_order_relaxed));
  const auto pause = static_cast<int>(draw % static_cast<std::uint64_t>(limit + 1));
  std::this_thread::sleep_for(std::chrono::microseconds(pause));
}

void testing::inject_delays(std::uint64_t seed, int max_microseconds) {
  delay_state = seed;
  delay_limit = max_microseconds;
}

void testing::run_ranks(int ranks, const std::function<void(Runtime&)>& body,
                        RuntimeOptions options) {
  comm::WorldOptions world_options;
  world_options.abort_job = false;
  options.abort_job = false;
  options.catch_signals = false;
  if (options.threads == 0) options.threads = 1;
  auto worlds = comm::create_thread_worlds(ranks, world_options);
  std::exception_ptr first_cause;
  std::mutex mutex;
  const auto run_rank = [&](int rank) {
    try {
      Runtime runtime(std::make_unique<detail::RuntimeCore>(std::move(worlds[rank]), options));
      try {
        body(runtime);
      } catch (...) {
        const detail::Outcome failure = detail::current_failure();
        if (!runtime.core().publish_failure(failure.text, failure.code)) return;
        const std::lock_guard lock(mutex);
        first_cause = std::current_exception();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_cause) first_cause = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(run_rank, rank);
  run_rank(0);
  for (std::thread& thread : threads) thread.join();
  if (first_cause) std::rethrow_exception(first_cause);
}

}  // namespace zero
