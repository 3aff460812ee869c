// Calls a function after each SIGUSR1 that this process receives, on a separate thread, so also
// while the program's thread waits for other ranks.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace zero::detail {

class TraceRequests {
 public:
  // Handles SIGUSR1 from here on, unless the program has a handler. The function must not throw.
  explicit TraceRequests(std::function<void()> write);
  ~TraceRequests();
  TraceRequests(const TraceRequests&) = delete;

 private:
  void run();

  const std::function<void()> write_;
  int seen_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace zero::detail
