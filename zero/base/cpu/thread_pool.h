// The compute threads of a rank. Work is divided into a part per thread by position, never by
// speed, so that results do not depend on timing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zero {

class ThreadPool {
 public:
  // `threads` includes the caller; 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs part(index) for every index below threads(), index 0 on the caller, and waits for all.
  // Rethrows the first exception of a part. Several threads may call, in turn. Not reentrant.
  void run(const std::function<void(int)>& part);

  // Divides [0, count) into threads() ranges at multiples of `grain` and runs body(begin, end) on
  // each.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  void work(int index);
  void stop();

  std::vector<std::thread> workers_;
  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int)>* part_ = nullptr;
  std::uint64_t round_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

// Returns the CPUs that this process may use, within the quota of its control groups, divided by
// the ranks on this host; at least 1.
int default_compute_threads(int ranks_on_node);

}  // namespace zero
