// Runs a function on N thread ranks like a program's: if one throws, its peers get the error, and
// the first cause is thrown again when all threads have ended.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "zero/base/error.h"

namespace zero::comm::testing {

inline void on_thread_ranks(int ranks, const std::function<void(World&)>& work,
                            const WorldOptions& options = {}, const ThreadSettings& settings = {}) {
  auto worlds = create_thread_worlds(ranks, options, settings);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (auto& world : worlds)
    threads.emplace_back([&, world = world.get()] {
      try {
        work(*world);
      } catch (const std::exception& error) {
        const auto* ours = dynamic_cast<const Error*>(&error);
        const bool is_first = world->fail(error.what(), ours != nullptr ? ours->exit_code() : 70);
        const std::lock_guard lock(mutex);
        if (is_first) first = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace zero::comm::testing
