#include "zero/base/cpu/thread_pool.h"

#include <algorithm>

#include "zero/base/cpus.h"
#include "zero/base/thread.h"

namespace zero {

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i)
      workers_.push_back(
          start_thread("compute thread " + std::to_string(i + 1) + " of " + std::to_string(threads),
                       [this, i] { work(i); }));
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const std::function<void(int)>& part) {
  if (workers_.empty()) return part(0);
  const std::lock_guard alone(callers_);
  {
    const std::lock_guard lock(mutex_);
    part_ = &part;
    running_ = static_cast<int>(workers_.size());
    failure_ = nullptr;
    ++round_;
  }
  start_.notify_all();
  std::exception_ptr own_failure;
  try {
    part(0);
  } catch (...) {
    own_failure = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  part_ = nullptr;
  if (own_failure) std::rethrow_exception(own_failure);
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::for_ranges(std::int64_t count, std::int64_t grain,
                            const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t grains = (count + grain - 1) / grain;
  const std::int64_t parts = std::min<std::int64_t>(threads(), grains);
  if (parts <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  run([&](int index) {
    const std::int64_t begin = std::min(count, grains * index / parts * grain);
    const std::int64_t end = std::min(count, grains * (index + 1) / parts * grain);
    if (index < parts && begin < end) body(begin, end);
  });
}

void ThreadPool::work(int index) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    const std::function<void(int)>& part = *part_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      part(index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    if (--running_ == 0) done_.notify_one();
  }
}

int default_compute_threads(int ranks_on_node) {
  int cpus = static_cast<int>(allowed_cpus().size());
  if (const int paid = cpus_of_cgroup(); paid > 0) cpus = std::min(cpus, paid);
  return std::max(1, cpus / std::max(1, ranks_on_node));
}

}  // namespace zero
