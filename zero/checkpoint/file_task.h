// Work on files that every rank does alone, on a separate thread, while the ranks exchange
// progress. All wait as long as any rank makes progress; if none does within the time limit, all
// throw StalledError with the late ranks. A rank that no longer takes part (a stopped process, a
// broken link) is missing in the exchange itself, and the same limit applies there.
//
// Belongs to a save or a load; for the program's thread, except for functions marked as the
// worker's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "zero/checkpoint/posix_files.h"
#include "zero/runtime/outcome.h"

namespace zero::detail {

class FileTask {
 public:
  FileTask() = default;
  FileTask(const FileTask&) = delete;
  ~FileTask() { cancel(); }

  // The work may throw, and must not communicate. After a rank has failed, the work's file calls
  // fail, so that a process that was stopped and resumes writes no more.
  void start(RuntimeCore& runtime, std::function<void()> work);
  bool busy() const { return !await_end(std::chrono::milliseconds(0)); }
  // Waits for this rank's work, which must have been started, and returns the outcome.
  const Outcome& own() const { return own_.get(); }
  // Waits for this rank's work only.
  void join() {
    if (worker_.joinable()) worker_.join();
  }
  // Does the same, but makes the work's next file call fail.
  void cancel() {
    cancelled_ = true;
    join();
  }
  // Collective: waits for the work of all ranks, and returns the joint outcome. `what`: "the
  // writing of step-500". Rank 0 prints the progress of the slowest rank.
  Outcome finish(RuntimeCore& runtime, Ranks& ranks, const std::string& what);
  // Starts and finishes the work; collective.
  template <class Work>
  static Outcome together(RuntimeCore& runtime, Ranks& ranks, const std::string& what,
                          Work&& work) {
    FileTask files;
    files.start(runtime, [&] { work(files); });
    return files.finish(runtime, ranks, what);
  }

  // After an error that ends the job: ends the process if the work is stuck in a system call,
  // unless the program owns the process (RuntimeOptions::abort_job).
  void give_up(RuntimeCore& runtime, const Error& error);

  // Called by the worker: bytes to process, and bytes processed. Every file call of the worker's
  // thread counts as progress too.
  void expect(std::int64_t bytes) { total_ += bytes; }
  void got_on(std::int64_t bytes = 0);

 private:
  struct Round;

  bool await_end(std::chrono::milliseconds limit) const {
    return own_.wait_for(limit) == std::future_status::ready;
  }
  Outcome watch(Ranks& ranks, const std::string& what);
  std::vector<Round> exchange(Ranks& ranks, const std::string& what, std::int64_t quiet_ms,
                              const std::vector<Round>& before);

  std::thread worker_;
  std::shared_future<Outcome> own_;
  std::atomic<bool> cancelled_{false};
  checkpoint::FileCalls calls_;
  std::atomic<std::int64_t> done_{0}, total_{0};
};

// Run the work until it throws no LoadError, for the time that new files of another host may take
// to become visible here, or once. A file that exists and cannot be read is a LoadError at once.
// The first returns the message of the last LoadError, or "" on success; the second throws
// TopologyError with the message, the host, and `what`, the name of the reader.
std::string visibility_problem(FileTask& files, bool once, const std::function<void()>& work);
void await_visible(const std::string& what, FileTask& files, const std::function<void()>& work);

}  // namespace zero::detail
