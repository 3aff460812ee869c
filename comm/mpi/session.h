// An initialized MPI, finalized at the end if this library initialized MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace zero::comm {

class MpiSession {
 public:
  // `finalizes`: the destructor finalizes MPI; false if MPI belongs to the program.
  explicit MpiSession(bool finalizes);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool finalizes() const { return finalizes_; }
  bool any_thread() const { return any_thread_; }
  // Finalizing a broken job could wait for ever.
  void forsake() { finalizes_ = false; }

 private:
  bool finalizes_, any_thread_ = false;
};

// Ends the process with the code of StalledError if calls in which MPI itself may wait without a
// limit take too long. The time counts from the constructor to the destructor.
class ProcessTimeLimit {
 public:
  // last_words() prints the reason, on a background thread.
  ProcessTimeLimit(std::chrono::milliseconds limit, std::function<void(int exit_code)> last_words);
  ~ProcessTimeLimit();
  ProcessTimeLimit(const ProcessTimeLimit&) = delete;
  ProcessTimeLimit& operator=(const ProcessTimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_time_ = false;
  std::thread thread_;
};

}  // namespace zero::comm
