#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "offload/request_queue.h"
#include "zero/base/thread.h"

namespace zero::offload {

namespace {

constexpr int most_threads = 32;

class ThreadQueue final : public RequestQueue {
 public:
  ThreadQueue(int fd, int depth) : fd_(fd) {
    try {
      for (int i = 0; i < std::min(depth, most_threads); ++i)
        threads_.push_back(start_thread("requests to an offload file", [this] { work(); }));
    } catch (...) {
      stop();
      throw;
    }
  }

  ~ThreadQueue() override { stop(); }

  std::string kind() const override { return std::to_string(threads_.size()) + " POSIX threads"; }

  void submit(const Request& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    wake_.notify_one();
  }

  std::optional<Completion> wait(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!done_.wait_for(lock, limit, [this] { return !completions_.empty(); })) return std::nullopt;
    const Completion completion = completions_.front();
    completions_.pop_front();
    return completion;
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::int64_t carry_out(const Request& request) const {
    const ssize_t moved =
        request.direction == Direction::read
            ? pread(fd_, request.data.data(), request.data.size(), request.offset)
            : pwrite(fd_, request.data.data(), request.data.size(), request.offset);
    return moved < 0 ? -errno : moved;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const Request request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const std::int64_t result = carry_out(request);
      lock.lock();
      completions_.push_back({request.tag, result});
      done_.notify_one();
    }
  }

  int fd_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<Request> requests_;
  std::deque<Completion> completions_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<RequestQueue> create_thread_queue(const QueueOptions& options) {
  return std::make_unique<ThreadQueue>(options.fd, options.depth);
}

}  // namespace zero::offload
