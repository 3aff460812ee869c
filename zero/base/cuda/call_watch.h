// Detects CUDA calls that do not return: a launch blocks if the stream's queue is full after a
// kernel that hangs, and a driver's lock may be held for ever. No wait with a limit notices this.
// Therefore a thread of the device watches how long each thread has been inside a call, and ends
// the process with the call's name once that exceeds the device's time limit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "zero/base/device_waits.h"

namespace zero::cuda {

// The threads whose calls a watch observes. Any thread.
class WatchedThreads {
 public:
  struct Slot {
    std::atomic<const char*> call{nullptr};  // null: the thread is in none
    std::atomic<std::int64_t> since{0};      // nanoseconds of the steady clock
  };

  // Observes the calling thread too from now on.
  static void add(const std::shared_ptr<WatchedThreads>& threads);
  // The watch that observes the calling thread; null if none does.
  static std::shared_ptr<WatchedThreads> of_this_thread();

  // Returns a call that a thread has been in for this long; null if there is none.
  const char* find_call_of(std::chrono::nanoseconds age);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Slot>> slots_;
};

// Exists around a CUDA call with this name. Costs nothing on threads that no watch observes.
class InCall {
 public:
  explicit InCall(const char* name);
  ~InCall();
  InCall(const InCall&) = delete;

 private:
  WatchedThreads::Slot* slot_;
};

class CallWatch {
 public:
  // Called with the exit code and a text that names the call. May end the process; a return ends
  // the watch.
  using GiveUp = std::function<void(int exit_code, const std::string& text)>;

  // `waits` must outlive the watch.
  CallWatch(DeviceWaits& waits, GiveUp give_up);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;

  const std::shared_ptr<WatchedThreads>& threads() const { return threads_; }

 private:
  void run();
  std::chrono::milliseconds patience();
  void give_up(const char* call);

  DeviceWaits& waits_;
  GiveUp give_up_;
  std::shared_ptr<WatchedThreads> threads_ = std::make_shared<WatchedThreads>();
  std::chrono::milliseconds limit_;  // the last limit that was not zero
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // begins last
};

}  // namespace zero::cuda
