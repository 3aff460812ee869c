// Watches the launched operations of a communicator: a thread polls NCCL for asynchronous errors
// and the oldest operation in progress, and ends the communicator if a peer has failed, if NCCL
// has, or if the time limit has passed. The guard does not abort NCCL while a thread of this
// process is inside, and does not wait for an abort that blocks: then the handle is leaked, or the
// process ended.
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
  // Throws PeerFailed if another rank has published a first cause. Any thread.
  std::function<void()> check_peers = [] {};
  // Calls on the communicator return only after NCCL's work on the host, as calls of a split
  // subgroup do.
  bool blocking = false;
  // Ends the process, after printing the cause, if abort() blocks or a thread does not return from
  // NCCL. If may_exit is false, the handle is leaked instead.
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

  // Holds around every NCCL call on the communicator; throws as check(). Either the guard sees that
  // a thread is inside, or the thread sees that the communicator has ended.
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

  // Locks out the guard's queries. While a communicator is split or grows, only one thread may
  // query NCCL, because the answer can complete the operation. The holder must watch the peers
  // meanwhile.
  std::unique_lock<std::mutex> asking_alone() { return std::unique_lock(asking_); }

  // Call before launching an operation: the limit includes the NCCL call, which connects to peers
  // at the first use and blocks meanwhile. Then call launched(), or forget() to withdraw the
  // operation, before the next announce(). One thread at a time.
  void announce(std::string what, std::chrono::milliseconds limit);
  // `ended` is complete when the announced operation has run.
  void launched(std::unique_ptr<Event> ended);
  void forget();
  // Throws the error that ended the communicator.
  void check() const;
  bool failed() const { return failed_; }
  // True after an abort that blocked or was impossible: NCCL must not get the handle again.
  bool leaked() const { return leaked_; }
  bool aborted() const { return aborted_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Operation {
    std::string what;
    std::shared_ptr<Event> ended;  // null until the launch
    Clock::time_point start;
    std::chrono::milliseconds limit;
  };

  void run();
  // Whether the oldest operation had ended, and was removed. Nothing is locked while NCCL or CUDA
  // is called, which may not return.
  bool take_oldest();
  std::string oldest();
  // Throws the error that ends the communicator: PeerFailed, also for NCCL's own failures, or
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
