// Calls of CUDA that do not come back: a launch waits where a stream's queue is full behind a
// kernel that hangs, and a driver's lock may be held for ever. No wait of ours sees this, so a
// thread of the device looks at how long each of our threads has been inside one call, and ends the
// process with the call's name once that is longer than the device's time limit allows.
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

// The threads whose calls a watch looks at. Any thread.
class WatchedThreads {
 public:
  struct Slot {
    std::atomic<const char*> call{nullptr};  // null: the thread is in none
    std::atomic<std::int64_t> since{0};      // nanoseconds of the steady clock
  };

  // From now on those of the calling thread too.
  static void add(const std::shared_ptr<WatchedThreads>& threads);
  // To which the calling thread was added last; null where it never was.
  static std::shared_ptr<WatchedThreads> of_this_thread();

  // A call that a thread has been in for so long; null where there is none.
  const char* find_call_of(std::chrono::nanoseconds age);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Slot>> slots_;
};

// Around a call of CUDA, which it names. Threads that no watch was told of cost nothing.
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
  // Gives the exit code and a text that names the call. It may end the process; where it returns,
  // the watch ends.
  using GiveUp = std::function<void(int exit_code, const std::string& text)>;

  // `waits` outlives it.
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
  std::chrono::milliseconds limit_;  // the last one that was not zero
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // begins last
};

}  // namespace zero::cuda
