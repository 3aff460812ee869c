// For how long at least one of several things was under way. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace zero::offload {

class BusyMeter {
 public:
  void begin() { change(1); }
  void end() { change(-1); }
  // Since the start, what is under way included.
  std::int64_t nanoseconds() {
    change(0);
    const std::lock_guard lock(mutex_);
    return std::chrono::nanoseconds(busy_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void change(int by) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (under_way_ > 0) busy_ += now - since_;
    since_ = now;
    under_way_ += by;
  }

  std::mutex mutex_;
  int under_way_ = 0;
  Clock::time_point since_;
  Clock::duration busy_{};
};

}  // namespace zero::offload
