// How long threads wait for a device, and what they say when it does not answer: NCCL, a driver or
// a kernel may hold its streams for ever. One for each device, whose streams and events keep to it.
// Any thread.
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
  // `check` throws what is known to hold the device up, if anything is.
  void describe(int rank, std::function<void()> check);
  void set_limit(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit() const;
  // What the device was given last: "reduce of unit h.3".
  void set_subject(const std::string& subject);

  // Returns once `complete` holds; throws as stall() where it does not within the limit.
  void await(const std::function<bool()>& complete);
  // Nobody waits for this device any more. Throws what check() does, or StalledError.
  [[noreturn]] void stall();
  // Then what the device may still use is not freed, which would be a wait too.
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
