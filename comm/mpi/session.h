// MPI up, and down again if we brought it up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace zero::comm {

class MpiSession {
 public:
  // Initializes MPI unless the program has.
  MpiSession(int& argc, char**& argv);
  // MPI belongs to the program.
  MpiSession();
  // Finalizes, if it began MPI and forsake() was not called.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool began() const { return began_; }
  bool any_thread() const { return any_thread_; }
  // Finalizing a broken job could wait for ever.
  void forsake() { forsaken_ = true; }

 private:
  bool began_ = false, any_thread_ = false, forsaken_ = false;
};

// Ends the process when the start, where MPI itself may wait without a limit, takes too long.
class StartGuard {
 public:
  explicit StartGuard(std::chrono::milliseconds limit);
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace zero::comm
