// Work on files that every rank does for itself, on a thread of its own, while the ranks tell each
// other how far they are. As long as one of them gets on, all wait; where none has for the time
// limit, all throw StalledError with the ranks that are late. A rank that takes no part any more (a
// stopped process, a cut link) is missing in the exchange itself, which has the same limit.
//
// Owned by a save or a load; the program's thread, but for what is said to be the worker's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "zero/checkpoint/file_layer.h"
#include "zero/runtime/outcome.h"

namespace zero::detail {

class FileWork {
 public:
  FileWork() = default;
  FileWork(const FileWork&) = delete;
  ~FileWork() { cancel(); }

  // The work may throw; it must not communicate. Its file calls fail once a rank has failed: a
  // process that was stopped and runs again writes no more.
  void start(RuntimeCore& runtime, std::function<void()> work);
  bool busy() const { return !await_end(std::chrono::milliseconds(0)); }
  // How the work went here, once it has been started; waits for it.
  const Outcome& own() const { return own_.get(); }
  // Waits for this rank's work alone.
  void join() {
    if (worker_.joinable()) worker_.join();
  }
  // The same, and its next file call fails.
  void cancel() {
    cancelled_ = true;
    join();
  }
  // Collective: waits for the work of all ranks, whose outcome it returns. `what`: "the writing of
  // step-500". Rank 0 prints how far the slowest is.
  Outcome finish(RuntimeCore& runtime, Ranks& ranks, const std::string& what);
  // Both at once; collective.
  template <class Work>
  static Outcome together(RuntimeCore& runtime, Ranks& ranks, const std::string& what,
                          Work&& work) {
    FileWork files;
    files.start(runtime, [&] { work(files); });
    return files.finish(runtime, ranks, what);
  }

  // After an error that ends the job: a process whose work is in a call of the system that does not
  // return is ended here, unless it is the program's (RuntimeOptions::abort_job).
  void give_up(RuntimeCore& runtime, const Error& error);

  // By the worker: bytes that it has to do with, and that it has done. Every file call of its
  // thread is progress too.
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

// Run the work until it throws no LoadError, for as long as another host's new files may take to be
// seen here, or once. What is there and cannot be read is a LoadError at once. The first returns
// what the last LoadError said, "" where there is none in the end; the second throws TopologyError
// with it, the host, and `what` that does not see.
std::string visibility_problem(FileWork& files, bool once, const std::function<void()>& work);
void await_visible(const std::string& what, FileWork& files, const std::function<void()>& work);

}  // namespace zero::detail
