#include "tools/zero/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "tools/zero/process.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Until a line that may be held back counts as the program's, until the launcher's own lines are
// shown though the job goes on, and until a descriptor that others hold open after the launcher's
// end is given up.
constexpr milliseconds moment{50}, patience{5000}, aftermath{200};

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // others may have made it so
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
      continue;
    }
    if (written < 0) return;  // nobody reads it; the job goes on
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// A terminal sends its signals to the launcher too; those of other processes reach this one alone.
bool is_from_terminal(const signalfd_siginfo& signal) {
  return signal.ssi_code == SI_KERNEL;
}

class Supervisor {
 public:
  explicit Supervisor(LauncherLines& lines) : lines_(lines) {}

  void run(const std::vector<std::string>& command);

 private:
  bool start(const std::vector<std::string>& command);
  void become_command(const std::vector<std::string>& command, const std::array<int, 2>& failure);
  void watch();
  void take_signal();
  bool take_output();
  int milliseconds_to_wait() const;
  void after_silence();
  [[noreturn]] void end();

  LauncherLines& lines_;
  sigset_t handled_{}, before_{};
  int signals_ = -1, output_ = -1;
  const pid_t parent_ = getpid();
  pid_t child_ = -1;
  int status_ = 0;
  bool open_ = true, ended_ = false, given_up_ = false;
  Clock::time_point owed_since_;
};

// What the child cannot do reaches the parent as an errno; a successful exec closes the pipe.
bool Supervisor::start(const std::vector<std::string>& command) {
  std::array<int, 2> errors{}, failure{};
  if (pipe2(errors.data(), O_CLOEXEC) != 0 || pipe2(failure.data(), O_CLOEXEC) != 0) return false;
  child_ = fork();
  if (child_ == 0) {
    dup2(errors[1], STDERR_FILENO);
    become_command(command, failure);
  }
  const int reason = errno;
  close(errors[1]);
  close(failure[1]);
  output_ = errors[0];
  int problem = child_ < 0 ? reason : 0;
  if (child_ > 0 && read(failure[0], &problem, sizeof problem) > 0) waitpid(child_, nullptr, 0);
  close(failure[0]);
  errno = problem;
  return problem == 0;
}

// The launcher ends with this process, however that ends, and its ranks with it.
void Supervisor::become_command(const std::vector<std::string>& command,
                                const std::array<int, 2>& failure) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent_) _exit(127);  // it has ended in between
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  become(command);
  const int problem = errno;
  [[maybe_unused]] const ssize_t written = write(failure[1], &problem, sizeof problem);
  _exit(127);
}

void Supervisor::run(const std::vector<std::string>& command) {
  sigemptyset(&handled_);
  for (const int number : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM,
                           SIGTSTP, SIGCONT, SIGPIPE})
    sigaddset(&handled_, number);
  std::signal(SIGCHLD, SIG_DFL);  // who ignores it cannot wait
  sigprocmask(SIG_BLOCK, &handled_, &before_);
  signals_ = signalfd(-1, &handled_, SFD_CLOEXEC);
  if (signals_ >= 0 && start(command)) {
    watch();
    end();
  }
  const int problem = errno;
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  errno = problem;
}

void Supervisor::watch() {
  while ((open_ || !ended_) && !given_up_) {
    std::array<pollfd, 2> sources = {{{signals_, POLLIN, 0}, {open_ ? output_ : -1, POLLIN, 0}}};
    const int ready = poll(sources.data(), sources.size(), milliseconds_to_wait());
    if (ready > 0 && sources[0].revents != 0) take_signal();
    const bool owed = lines_.owes();
    if (ready > 0 && sources[1].revents != 0) open_ = take_output();
    if (!owed) owed_since_ = Clock::now();
    if (ready == 0) after_silence();
    if (lines_.owes() && Clock::now() - owed_since_ >= patience) write_all(lines_.settle());
  }
}

int Supervisor::milliseconds_to_wait() const {
  if (lines_.undecided()) return moment.count();
  if (ended_) return aftermath.count();
  if (!lines_.owes()) return -1;
  const auto left = owed_since_ + patience - Clock::now();
  return static_cast<int>(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(left)).count());
}

void Supervisor::after_silence() {
  if (lines_.undecided())
    write_all(lines_.pause());
  else
    given_up_ = ended_;
}

bool Supervisor::take_output() {
  std::array<char, 65536> buffer{};
  const ssize_t got = read(output_, buffer.data(), buffer.size());
  if (got > 0) write_all(lines_.pass({buffer.data(), static_cast<std::size_t>(got)}));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

void Supervisor::take_signal() {
  signalfd_siginfo signal{};
  if (read(signals_, &signal, sizeof signal) != static_cast<ssize_t>(sizeof signal)) return;
  const auto number = static_cast<int>(signal.ssi_signo);
  if (number == SIGCHLD) {
    if (!ended_ && waitpid(child_, &status_, WNOHANG) == child_) ended_ = true;
    return;
  }
  if (number != SIGPIPE && !ended_ && !is_from_terminal(signal)) kill(child_, number);
  if (number == SIGTSTP) raise(SIGSTOP);
}

void Supervisor::end() {
  write_all(lines_.settle());
  if (WIFEXITED(status_)) _exit(WEXITSTATUS(status_));
  // As the launcher ended, without a core of its own.
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const int number = WTERMSIG(status_);
  std::signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  sigset_t just_this;
  sigemptyset(&just_this);
  sigaddset(&just_this, number);
  sigprocmask(SIG_UNBLOCK, &just_this, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace

void supervise(const std::vector<std::string>& command, LauncherLines& lines) {
  Supervisor(lines).run(command);
}

}  // namespace zero::tool
