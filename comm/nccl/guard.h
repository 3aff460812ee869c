// Watches what a communicator has launched: a thread that asks NCCL for asynchronous errors, knows
// the oldest operation that has not ended, and ends the communicator when a peer has failed, NCCL
// has, or the time limit has passed. NCCL is not told to abort while a thread of ours is inside it,
// and an abort that blocks is not waited for: the handle is then leaked, or the process ended.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/nccl/api.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

struct GuardOptions {
  std::shared_ptr<Api> api;
  Handle communicator = nullptr;
  // Throws PeerFailed where another rank has published a first cause; any thread.
  std::function<void()> check_peers = [] {};
  // Calls on the communicator return only when NCCL has carried them out on the host, as those of a split part do.
  bool blocking = false;
  // Ends the process, after printing the cause, if abort() blocks or a thread does not come back from NCCL. If
  // may_exit is false, the handle is leaked instead.
  bool may_exit = true;
  std::function<void(int exit_code, const std::string& cause)> exit;
  std::chrono::milliseconds abort_limit{5'000};
  std::chrono::milliseconds tick{20};
};

class Guard {
 public:
  explicit Guard(GuardOptions options);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Around every call of NCCL on the communicator; throws as check(). Either the guard sees the
  // thread inside, or the thread sees that the communicator has ended.
  class Inside {
   public:
    explicit Inside(Guard& guard) : guard_(guard) {
      ++guard_.inside_;
      if (!guard_.failed()) return;
      --guard_.inside_;
      guard_.check();
    }
    ~Inside() { --guard_.inside_; }
    Inside(const Inside&) = delete;

   private:
    Guard& guard_;
  };

  // NCCL's answer about a communicator may end a job of it: while one is split or grows, one thread
  // alone may ask. The guard does not as long as this lives, and the holder looks after peers.
  std::unique_lock<std::mutex> asking_alone() { return std::unique_lock(asking_); }

  // Called before an operation is launched: its limit holds inside NCCL's call too, which connects to peers at the
  // first use and blocks meanwhile. launched() then gives its event, or forget() takes it back. The calls of one
  // communicator come from one thread at a time.
  void announce(std::string what, std::chrono::milliseconds limit);
  // `ended` is complete when the announced operation has run.
  void launched(std::unique_ptr<Event> ended);
  void forget();
  // Throws what ended the communicator.
  void check() const;
  bool failed() const { return failed_; }
  // After an abort that blocked, or one that could not be made: NCCL must not see the handle again.
  bool leaked() const { return leaked_; }
  bool aborted() const { return aborted_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    std::string what;
    std::shared_ptr<Event> ended;  // null until it is launched
    Clock::time_point start;
    std::chrono::milliseconds limit;
  };

  void run();
  // Whether the oldest operation had ended; then the next one is the oldest. Nothing is locked
  // while NCCL or CUDA is called, which may not come back.
  bool take_oldest();
  std::string oldest();
  // Throws what ends the communicator: PeerFailed, which NCCL's own failures are too, or
  // StalledError.
  void look();
  void end(std::exception_ptr failure, const zero::Error& cause);

  GuardOptions options_;
  std::atomic<int> inside_{0};
  std::atomic<bool> failed_{false}, leaked_{false}, aborted_{false};
  std::mutex asking_;
  mutable std::mutex mutex_;
  std::deque<Operation> operations_;
  std::exception_ptr failure_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace zero::comm::nccl
