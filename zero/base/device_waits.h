// Time limit and error messages of waits for a device, because NCCL, a driver or a kernel may block
// a stream forever. One per device, used by all streams and events there. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace zero {

class DeviceWaits {
 public:
  // `check` throws the known cause of a stalled device, if any.
  void describe(int rank, std::function<void()> check);
  void set_limit(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit() const;
  // The newest work given to the device: "reduce of unit h.3".
  void set_subject(const std::string& subject);

  // Returns once `complete` holds; after the limit throws like stall().
  void await(const std::function<bool()>& complete);
  // Marks the device as stalled, so that no thread waits there again. Throws as check() does, or
  // StalledError.
  [[noreturn]] void stall();
  // If true, memory that the device may still use is not freed, because freeing would wait too.
  bool stalled() const { return stalled_; }

 private:
  std::atomic<std::int64_t> limit_in_milliseconds_{600'000};
  std::atomic<bool> stalled_{false};
  std::mutex mutex_;
  int rank_ = 0;
  std::function<void()> check_;
  std::string subject_;
};

}  // namespace zero
