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
#include <cstring>
#include <string>
#include <utility>

#include "tools/zero/process.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Time until a line that may be held back counts as the program's, until the launcher's own lines
// are shown although the job continues, and, after the launcher has ended, until a descriptor that
// others keep open is given up.
constexpr milliseconds moment{50}, patience{5000}, aftermath{200};
// If a launcher does not end: interval of the search for its ranks, time limit after the last of
// them, and time limit after SIGTERM.
constexpr milliseconds look{250}, launcher_grace{5000}, farewell{2500};
// Time limit if no rank is seen on this machine, because those of other machines may still be
// leaving.
constexpr milliseconds unseen_grace{15'000};

// A terminal sends its signals to the launcher too; those of other processes reach only this
// process.
bool is_from_terminal(const signalfd_siginfo& signal) {
  return signal.ssi_code == SI_KERNEL;
}

// The user, a scheduler or a closed terminal wants the job to end, with or without a save.
constexpr std::array<int, 4> end_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

class Supervisor {
 public:
  Supervisor(int ranks, LauncherLines& lines, const JobSignals& signals, JobCompanion* companion)
      : ranks_(ranks), lines_(lines), signals_(signals), companion_(companion) {}
  ~Supervisor() {
    if (output_ >= 0) close(output_);
  }

  std::optional<JobEnd> run(const std::vector<std::string>& command);

 private:
  bool start(const std::vector<std::string>& command);
  void become_command(const std::vector<std::string>& command, const std::array<int, 2>& failure);
  void watch();
  void take_signal();
  bool take_output();
  void take_all_output();
  int milliseconds_to_wait() const;
  void after_silence();
  void name_missing();
  void end_launcher_when_due();
  void end_for_companion();
  void kill_all();
  void pass_on(int number);
  void ask_to_stop_when_possible();
  JobEnd end();
  void show(std::string_view text) {
    companion_ != nullptr ? companion_->show(text) : write_text(text);
  }

  const int ranks_;
  LauncherLines& lines_;
  const JobSignals& signals_;
  JobCompanion* const companion_;  // or none
  int output_ = -1;
  const pid_t parent_ = getpid();
  pid_t child_ = -1;
  int status_ = 0;
  bool open_ = true, ended_ = false, given_up_ = false;
  Clock::time_point owed_since_;
  Clock::time_point left_since_{};    // of the ranks here, after a cause; 0: not yet
  Clock::time_point ending_since_{};  // for the companion; 0: not yet
  bool seen_here_ = false;            // ranks
  bool missing_named_ = false, asked_to_end_ = false, killed_ = false;
  int stop_number_ = 0;  // of the signal that requested a stop; 0: none
  bool stop_sent_ = false, job_ended_by_signal_ = false;
  bool stop_passed_on_ = false;  // as SIGUSR2, which ranks understand
  bool end_asked_ = false;       // by one of end_signals, from a process or a terminal
};

// Errors of the child reach the parent as an errno; a successful exec closes the pipe.
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

// The launcher, and its ranks, end with this process, even if this process is killed.
void Supervisor::become_command(const std::vector<std::string>& command,
                                const std::array<int, 2>& failure) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent_) _exit(127);  // the parent has already ended
  signals_.restore();
  become(command);
  const int problem = errno;
  [[maybe_unused]] const ssize_t written = write(failure[1], &problem, sizeof problem);
  _exit(127);
}

std::optional<JobEnd> Supervisor::run(const std::vector<std::string>& command) {
  if (!start(command)) return std::nullopt;
  watch();
  return end();
}

void Supervisor::watch() {
  while ((open_ || !ended_) && !given_up_) {
    std::vector<pollfd> sources = {{signals_.descriptor(), POLLIN, 0},
                                   {open_ ? output_ : -1, POLLIN, 0}};
    if (companion_ != nullptr) companion_->add_sources(sources);
    int wait = milliseconds_to_wait();
    if (companion_ != nullptr && !ended_)
      wait = wait < 0 ? JobCompanion::tick_ms : std::min(wait, JobCompanion::tick_ms);
    const int ready = poll(sources.data(), sources.size(), wait);
    const bool owed = lines_.owes();
    if (ready > 0 && sources[1].revents != 0) open_ = take_output();
    if (ready > 0 && sources[0].revents != 0) take_signal();
    if (!owed) owed_since_ = Clock::now();
    if (ready == 0) after_silence();
    if (lines_.owes() && Clock::now() - owed_since_ >= patience) show(lines_.settle());
    if (!lines_.started().empty() && !seen_here_ && !ended_)
      seen_here_ = !ranks_among(descendants_of(child_)).empty();
    if (lines_.start_failed() && !missing_named_) name_missing();
    if (lines_.cause_said() && !ended_) end_launcher_when_due();
    if (stop_number_ != 0 && !ended_) ask_to_stop_when_possible();
    if (companion_ != nullptr) companion_->serve();
    if (companion_ != nullptr && !ended_) end_for_companion();
  }
}

int Supervisor::milliseconds_to_wait() const {
  if (lines_.undecided()) return moment.count();
  if (ended_) return aftermath.count();
  if (lines_.cause_said()) return look.count();
  if (!lines_.owes()) return -1;
  const auto left = owed_since_ + patience - Clock::now();
  return static_cast<int>(std::max(milliseconds(0), std::chrono::ceil<milliseconds>(left)).count());
}

// Names the missing ranks, since ranks that wait in MPI's start cannot identify them.
void Supervisor::name_missing() {
  missing_named_ = true;
  const std::vector<RankProcess> here = ranks_among(descendants_of(child_));
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto own = std::ranges::find_if(
        here, [&](const RankProcess& process) { return process.rank == rank && process.stopped; });
    const bool stopped = own != here.end();
    if (lines_.started().contains(rank) && !stopped) continue;
    show("zero run: rank " + std::to_string(rank) + " is missing: " +
         (stopped ? "its process " + std::to_string(own->pid) + " is stopped"
                  : "it has not reached zero::run()") +
         "\n");
  }
}

// Ends a launcher that may be waiting for unreachable hosts.
void Supervisor::end_launcher_when_due() {
  const std::vector<pid_t> below = descendants_of(child_);
  if (left_since_ == Clock::time_point{}) {
    if (!ranks_among(below).empty()) return;
    left_since_ = Clock::now();
  }
  const auto waited = Clock::now() - left_since_;
  const milliseconds grace = seen_here_ ? launcher_grace : unseen_grace;
  if (waited >= grace && !std::exchange(asked_to_end_, true)) {
    show("zero run: all ranks of this machine have left, but " + std::to_string(child_) +
         ", the launcher, has not: it is ended now; a host may be out of reach\n");
    kill(child_, SIGTERM);
  }
  if (waited < grace + farewell || std::exchange(killed_, true)) return;
  kill_all();
}

void Supervisor::kill_all() {
  const std::vector<pid_t> below = descendants_of(child_);
  kill(child_, SIGKILL);
  for (const pid_t process : below) kill(process, SIGKILL);
}

// The launcher would wait for a host that is out of reach.
void Supervisor::end_for_companion() {
  if (ending_since_ == Clock::time_point{}) {
    const std::string reason = companion_->reason_to_end();
    if (reason.empty()) return;
    ending_since_ = Clock::now();
    asked_to_end_ = true;
    show(reason + "\n");
    for (const RankProcess& rank : ranks_among(descendants_of(child_))) kill(rank.pid, SIGKILL);
    // Open MPI sometimes crashes on the way out.
    const rlimit none{0, 0};
    prlimit(child_, RLIMIT_CORE, &none, nullptr);
    kill(child_, SIGTERM);
  }
  if (Clock::now() - ending_since_ >= farewell && !std::exchange(killed_, true)) kill_all();
}

void Supervisor::after_silence() {
  if (lines_.undecided())
    show(lines_.pause());
  else
    given_up_ = ended_;
}

bool Supervisor::take_output() {
  std::array<char, 65536> buffer{};
  const ssize_t got = read(output_, buffer.data(), buffer.size());
  if (got > 0) show(lines_.pass({buffer.data(), static_cast<std::size_t>(got)}));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

// Reads the pipe's contents, without waiting, because marks that were written before a signal
// count.
void Supervisor::take_all_output() {
  pollfd output{output_, POLLIN, 0};
  while (open_ && poll(&output, 1, 0) > 0 && output.revents != 0) open_ = take_output();
}

void Supervisor::take_signal() {
  signalfd_siginfo signal{};
  if (read(signals_.descriptor(), &signal, sizeof signal) != static_cast<ssize_t>(sizeof signal))
    return;
  const auto number = static_cast<int>(signal.ssi_signo);
  if (number == SIGCHLD) {
    if (!ended_ && waitpid(child_, &status_, WNOHANG) == child_) ended_ = true;
    return;
  }
  end_asked_ = end_asked_ || std::ranges::find(end_signals, number) != end_signals.end();
  // A terminal that closes may reach the leader of its session alone.
  const bool passes = number == SIGHUP || !is_from_terminal(signal);
  if (number != SIGPIPE && !ended_ && passes) pass_on(number);
  if (number == SIGTSTP) raise(SIGSTOP);
}

// Open MPI ends its ranks a second after SIGTERM or SIGINT. Since it forwards SIGUSR2, and
// ZeroCore's ranks then stop at their next step, as on SIGTERM, SIGUSR2 is sent first.
void Supervisor::pass_on(int number) {
  const bool ends = number == SIGTERM || number == SIGINT;
  const bool first = stop_number_ == 0;
  take_all_output();
  if (ends && first && !lines_.started().empty()) {
    stop_number_ = number;
    return;
  }
  job_ended_by_signal_ = job_ended_by_signal_ || ends;
  stop_passed_on_ = stop_passed_on_ || number == SIGUSR2;
  kill(child_, number);
}

// Sends SIGUSR2 only when all ranks can handle it, because it would end ranks that are still in
// MPI's start.
void Supervisor::ask_to_stop_when_possible() {
  if (!stop_sent_ && std::ssize(lines_.stoppable()) == ranks_) {
    stop_sent_ = true;
    show(
        "zero run: the ranks are asked to stop after this step; a second signal ends them at "
        "once\n");
    kill(child_, SIGUSR2);
  }
  if (!lines_.stop_ignored() || job_ended_by_signal_) return;
  show("zero run: the program continues its steps: its ranks are ended now\n");
  job_ended_by_signal_ = true;
  kill(child_, stop_number_);
}

JobEnd Supervisor::end() {
  show(lines_.settle());
  JobEnd job{.stop_requested = end_asked_ || stop_passed_on_};
  // mpirun then has an exit code of its own: nothing was saved.
  const bool saved = WIFEXITED(status_) && WEXITSTATUS(status_) == stopped_saved;
  if (asked_to_end_ && lines_.exit_code())
    job.code = *lines_.exit_code();
  else if (stop_number_ != 0 && job_ended_by_signal_ && !lines_.exit_code() && !saved)
    job.code = stopped_unsaved;
  else if (WIFEXITED(status_))
    job.code = WEXITSTATUS(status_);
  else
    job.signal = WTERMSIG(status_);
  return job;
}

}  // namespace

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
  descriptor_ = signalfd(-1, &handled, SFD_CLOEXEC);
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

void JobSignals::restore() const {
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<JobEnd> supervise(const std::vector<std::string>& command, int ranks,
                                LauncherLines& lines, const JobSignals& signals,
                                JobCompanion* companion) {
  return Supervisor(ranks, lines, signals, companion).run(command);
}

void write_text(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // another process may have set O_NONBLOCK
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      poll(&room, 1, -1);
      continue;
    }
    if (written < 0) return;  // no reader is left; the job continues
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void write_line(const std::string& text) {
  write_text(text + "\n");
}

void end_like(const JobEnd& job, const JobSignals& signals) {
  if (job.signal == 0) _exit(job.code);
  // Without a core dump of its own.
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(job.signal, SIG_DFL);
  signals.restore();
  sigset_t just_this;
  sigemptyset(&just_this);
  sigaddset(&just_this, job.signal);
  sigprocmask(SIG_UNBLOCK, &just_this, nullptr);
  raise(job.signal);
  _exit(128 + job.signal);
}

}  // namespace zero::tool
