#include "zero/runtime/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace zero::detail {

namespace {

volatile std::sig_atomic_t stop_signals = 0;
std::atomic<pid_t> catching_process = 0;  // lock-free, so a signal handler may read this

// The first signal requests an orderly stop at the next step border; the second ends the process.
// A forked child (a worker that loads data) ends by its first signal.
void on_stop_signal(int number) {
  if (getpid() != catching_process) {
    std::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  stop_signals = stop_signals + 1;
  // A launcher may forward SIGUSR2 more than once.
  std::signal(number, number == SIGUSR2 ? on_stop_signal : SIG_DFL);
}

}  // namespace

void request_stop_on(std::span<const int> numbers) {
  catching_process = getpid();
  for (const int number : numbers) std::signal(number, on_stop_signal);
}

bool stop_requested() {
  return stop_signals > 0;
}

void ignore_system_signals() {
  for (const int number : {SIGXFSZ, SIGPIPE}) {
    struct sigaction current {};
    if (sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
        current.sa_handler == SIG_DFL)
      std::signal(number, SIG_IGN);
  }
}

}  // namespace zero::detail
