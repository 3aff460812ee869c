#include "tools/zero/job_signals.h"

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "zero/base/error.h"

namespace zero::tool {

JobSignals::JobSignals() {
  sigset_t handled;
  sigemptyset(&handled);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  for (const int number : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM,
                           SIGTSTP, SIGCONT, SIGPIPE})
    sigaddset(&handled, number);
  if (hang_up.sa_handler == SIG_IGN) sigdelset(&handled, SIGHUP);  // started by nohup
  std::signal(SIGCHLD, SIG_DFL);  // waiting fails if SIGCHLD is ignored
  sigprocmask(SIG_BLOCK, &handled, &before_);
  descriptor_ = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) {
    const int problem = errno;
    restore();
    throw TopologyError(std::string("signals cannot be read (signalfd): ") +
                        std::strerror(problem));
  }
}

JobSignals::~JobSignals() {
  close(descriptor_);
  restore();
}

int JobSignals::take() const {
  signalfd_siginfo signal{};
  const ssize_t got = read(descriptor_, &signal, sizeof signal);
  return got == static_cast<ssize_t>(sizeof signal) ? static_cast<int>(signal.ssi_signo) : 0;
}

void JobSignals::restore() const {
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

bool asks_for_end(int number) {
  constexpr std::array stops = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR2};
  return std::ranges::find(stops, number) != stops.end();
}

void end_by_signal(int number, const JobSignals& signals) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(number, SIG_DFL);
  signals.restore();
  sigset_t just_this;
  sigemptyset(&just_this);
  sigaddset(&just_this, number);
  sigprocmask(SIG_UNBLOCK, &just_this, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace zero::tool
