#include "zero/engine/trace_request.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <utility>

#include "zero/base/thread.h"

namespace zero::detail {

namespace {

constexpr std::chrono::milliseconds interval{100};  // between looks at the flag

std::atomic<int> requests = 0;  // lock-free, as the next variable
std::atomic<pid_t> handling_process = 0;

// A forked process (a worker that loads data) ends, as without a handler.
void on_request(int number) {
  if (getpid() != handling_process) {
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  requests = requests + 1;
}

void handle_requests() {
  struct sigaction current {};
  if (sigaction(SIGUSR1, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 ||
      current.sa_handler != SIG_DFL)
    return;
  handling_process = getpid();
  std::signal(SIGUSR1, on_request);
}

}  // namespace

TraceRequests::TraceRequests(std::function<void()> write)
    : write_(std::move(write)), seen_(requests) {
  handle_requests();
  thread_ = start_thread("traces on SIGUSR1", [this] { run(); });
}

TraceRequests::~TraceRequests() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_one();
  thread_.join();
}

void TraceRequests::run() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, interval, [this] { return ending_; })) {
    if (requests == seen_) continue;
    seen_ = requests;
    write_();
  }
}

}  // namespace zero::detail
