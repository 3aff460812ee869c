#include "tools/zero/supervise.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "tools/zero/process.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Time until a line that may be held back counts as the program's; until the launcher's own lines
// are shown although the job continues; and, after the launcher's end, until a descriptor that
// stays open is given up, later if ranks have not reported.
constexpr milliseconds moment{50}, patience{5000}, aftermath{200}, late_reports{3000};
// Until processes that were killed have gone, unless they wait inside the system.
constexpr seconds burial{10};
// Before the limit of the start: ranks without a report are looked for below the launcher.
constexpr seconds last_look{2};

constexpr std::array<std::pair<int, std::string_view>, 5> signal_names = {{{SIGTERM, "SIGTERM"},
                                                                           {SIGINT, "SIGINT"},
                                                                           {SIGHUP, "SIGHUP"},
                                                                           {SIGQUIT, "SIGQUIT"},
                                                                           {SIGUSR2, "SIGUSR2"}}};

// Whether a rank has failed by itself, as in a save. Peers may only see that ranks end.
bool is_cause(int code) {
  return code == Error::code || (code >= ConfigError::code && code <= OffloadError::code &&
                                 code != PeerFailed::code && code != StalledError::code);
}

}  // namespace

struct Job::Launched {
  explicit Launched(JobStart job) : start(std::move(job)), owed_since(Clock::now()) {}
  ~Launched() {
    if (output >= 0) close(output);
  }

  JobStart start;
  TerminalInput input;
  int output = -1;
  pid_t child = -1;
  int status = 0;
  bool open = true, ended = false, given_up = false;  // the output, the launcher, the output
  Clock::time_point began = Clock::now(), owed_since;
  bool missing_named = false, asked = false, looked = false;
  std::optional<int> cause;  // the code that ranks had reported before this job was ended
  std::optional<std::int64_t> saved_before_stop;
};

Job::Job(const JobSignals& signals, const JobLimits& limits, JobCompanion& companion)
    : signals_(signals), companion_(companion), machine_(limits, Clock::now()) {}
Job::~Job() = default;

std::optional<JobEnd> Job::run(JobStart start) {
  const int stops = facts_.stops;
  facts_ = {};
  facts_.stops = stops;
  facts_.placed = true;
  processes_.clear();
  take_signals();
  now_ = std::make_unique<Launched>(std::move(start));
  const Rule* rule = machine_.next(facts_, Clock::now());
  if (rule == nullptr || rule->action != Action::start) {
    if (!stop_requested()) return JobEnd{.code = PeerFailed::code};
    say(stop_text() + " before the start");
    return JobEnd{.code = stopped_unsaved, .stop_requested = true};
  }
  facts_.placed = false;
  if (!launch()) return std::nullopt;
  while (machine_.state() != State::restarting && machine_.state() != State::over)
    pump(JobCompanion::tick_ms);
  finish_output();
  return end();
}

// Errors of the child reach the parent as an errno; a successful exec closes the pipe.
bool Job::launch() {
  std::array<int, 2> errors{}, failure{};
  if (pipe2(errors.data(), O_CLOEXEC) != 0 || pipe2(failure.data(), O_CLOEXEC) != 0) return false;
  const pid_t parent = getpid();
  now_->child = fork();
  if (now_->child == 0) {
    dup2(errors[1], STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // also if this process is killed
    if (getppid() != parent) _exit(127);
    become_command(failure);
  }
  const int reason = errno;
  close(errors[1]);
  close(failure[1]);
  now_->output = errors[0];
  now_->input.close_reader();
  int problem = now_->child < 0 ? reason : 0;
  if (now_->child > 0) setpgid(now_->child, now_->child);
  if (now_->child > 0 && read(failure[0], &problem, sizeof problem) > 0)
    waitpid(now_->child, nullptr, 0);
  close(failure[0]);
  errno = problem;
  return problem == 0;
}

// Runs in the child. In a separate group the launcher gets no signals of the terminal: these come
// here first. Writes to the terminal remain possible.
void Job::become_command(const std::array<int, 2>& failure) {
  setpgid(0, 0);
  std::signal(SIGTTOU, SIG_IGN);
  now_->input.become_input();
  signals_.restore();
  become(now_->start.command);
  const int problem = errno;
  [[maybe_unused]] const ssize_t written = write(failure[1], &problem, sizeof problem);
  _exit(127);
}

bool Job::serve_until(Clock::duration limit, const std::function<bool()>& done) {
  const auto end = Clock::now() + limit;
  while (!done() && !is_over() && Clock::now() < end) pump(JobCompanion::tick_ms);
  return !is_over() && done();
}

bool Job::wait_for_slots(const std::function<bool()>& done) {
  facts_.unplaced = true;
  apply_rules();
  facts_.unplaced = false;
  while (!is_over() && !done()) pump(JobCompanion::tick_ms);
  return !is_over();
}

// Waits for an event, and takes all that have come.
void Job::pump(int longest_ms) {
  const bool launched = now_ && now_->child > 0;
  std::vector<pollfd> sources = {{signals_.descriptor(), POLLIN, 0},
                                 {launched && now_->open ? now_->output : -1, POLLIN, 0}};
  processes_.add_sources(sources);
  if (launched) now_->input.add_sources(sources);
  companion_.add_sources(sources);
  const bool owed = launched && now_->start.lines.owes();
  const int ready = poll(sources.data(), sources.size(), milliseconds_to_wait(longest_ms));
  if (launched && ready > 0 && sources[1].revents != 0) now_->open = take_output();
  take_signals();
  processes_.update();
  companion_.serve();
  if (launched) {
    now_->input.serve();
    if (!owed) now_->owed_since = Clock::now();
    show_held_lines(ready == 0);
    take_reports();
    if (now_->start.lines.start_failed() && !now_->missing_named) name_missing();
  }
  update_facts();
  apply_rules();
}

int Job::milliseconds_to_wait(int longest_ms) const {
  const bool undecided = now_ && now_->child > 0 && now_->start.lines.undecided();
  return undecided ? std::min<int>(longest_ms, moment.count()) : longest_ms;
}

void Job::show_held_lines(bool silent) {
  LauncherLines& lines = now_->start.lines;
  if (silent && lines.undecided()) show(lines.pause());
  if (lines.owes() && Clock::now() - now_->owed_since >= patience) show(lines.take_held());
}

bool Job::take_output() {
  std::array<char, 65536> buffer{};
  const ssize_t got = read(now_->output, buffer.data(), buffer.size());
  if (got > 0) show(now_->start.lines.pass({buffer.data(), static_cast<std::size_t>(got)}));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

// Reads the pipe's contents, without waiting, because marks that were written before a signal
// count.
void Job::take_what_came_before() {
  if (!now_ || now_->child <= 0 || now_->ended) return;
  pollfd output{now_->output, POLLIN, 0};
  while (now_->open && poll(&output, 1, 0) > 0 && output.revents != 0) now_->open = take_output();
  take_reports();
  update_facts();
  apply_rules();
}

void Job::take_signals() {
  while (const int number = signals_.take()) {
    if (number == SIGCHLD || number == SIGPIPE) continue;
    take_what_came_before();
    if (!asks_for_end(number)) {
      pass_on(number);
    } else if (!(number == SIGHUP && std::exchange(hung_up_, true)) &&
               !(number == SIGUSR2 && facts_.stops > 0)) {
      if (facts_.stops++ == 0) stop_signal_ = number;
    }
  }
  if (!now_ || now_->child <= 0 || now_->ended) return;
  // The launcher's pid, which is also the group's, stays reserved until end().
  siginfo_t info{};
  now_->ended =
      waitid(P_PID, static_cast<id_t>(now_->child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == now_->child;
}

void Job::pass_on(int number) {
  if (now_ && now_->child > 0 && !now_->ended) ::kill(now_->child, number);
  if (number == SIGTSTP) raise(SIGSTOP);
}

void Job::take_reports() {
  for (const ReportedProcess& report : now_->start.lines.take_processes())
    if (!processes_.add(report)) companion_.take_process(report);
}

void Job::update_facts() {
  companion_.add_facts(facts_);
  if (!now_ || now_->child <= 0) return;
  const LauncherLines& lines = now_->start.lines;
  const int ranks = now_->start.ranks;
  const JobCompanion::Elsewhere elsewhere = companion_.elsewhere();
  const int watched = processes_.ranks() + elsewhere.ranks;
  const int left = processes_.left() + elsewhere.left;
  facts_.launcher_gone = now_->ended;
  facts_.failed = lines.ending();
  facts_.first_seen = facts_.first_seen || !lines.up().empty();
  facts_.all_seen = facts_.all_seen || std::ssize(lines.up()) >= ranks;
  facts_.one_left = left < watched;
  // The launcher alone watches the ranks of hosts without an agent.
  facts_.all_left = watched > 0 && left == 0 && (watched >= ranks || facts_.failed);
  facts_.meets = !lines.started().empty();
  facts_.met = lines.met() || lines.step().has_value();
  facts_.stoppable = !lines.stoppable().empty();
  facts_.goes_on = lines.stop_ignored();
  if (lines.start_limit() > 0) machine_.limit_meeting(seconds(lines.start_limit()));
  find_unreported_ranks();
}

// The launcher may have been told to write the ranks' standard error elsewhere.
void Job::find_unreported_ranks() {
  if (machine_.state() != State::starting || now_->looked || now_->ended || !machine_.deadline() ||
      Clock::now() + last_look < *machine_.deadline())
    return;
  now_->looked = true;
  facts_.first_seen = facts_.all_seen = !ranks_among(descendants_of(now_->child)).empty();
}

void Job::apply_rules() {
  while (const Rule* rule = machine_.next(facts_, Clock::now())) perform(*rule);
}

void Job::perform(const Rule& rule) {
  const bool launched = now_ && now_->child > 0;
  if (launched && rule.code != 0) now_->start.lines.expect_end();
  if (rule.event == Event::unwanted && !companion_.reason_to_end().empty())
    show(companion_.reason_to_end() + "\n");
  if (!rule.says.empty()) say(rule.says);
  if (!launched) return;
  if (rule.code == StalledError::code && rule.event == Event::deadline) name_missing();
  const bool ends = rule.action == Action::pass || rule.action == Action::end;
  if (ends && !now_->cause) now_->cause = now_->start.lines.exit_code().value_or(0);
  if (rule.action == Action::ask) ask();
  if (rule.action == Action::end || rule.action == Action::kill) {
    processes_.kill();
    companion_.kill();
  }
  if (ends) {
    // Open MPI sometimes crashes on the way out.
    const rlimit none{0, 0};
    prlimit(now_->child, RLIMIT_CORE, &none, nullptr);
    ::kill(now_->child, SIGTERM);
  }
  if (rule.action == Action::kill) kill_all();
}

// Each rank that is asked makes all ranks stop. Only the launcher can reach hosts without an agent,
// and the launcher's SIGUSR2 would end ranks that are still in MPI's start.
void Job::ask() {
  now_->asked = true;
  now_->saved_before_stop = now_->start.lines.saved();
  const bool here = processes_.ask(), elsewhere = companion_.ask();
  if (here || elsewhere) return;
  if (std::ssize(now_->start.lines.stoppable()) == now_->start.ranks)
    ::kill(now_->child, SIGUSR2);
  else
    ::kill(now_->child, SIGTERM);
}

// The launcher, and ranks that have not reported: below the launcher are also those who started it
// from a script, which are in its group.
void Job::kill_all() {
  for (const RankProcess& rank : ranks_among(children_of(now_->child))) ::kill(rank.pid, SIGKILL);
  ::kill(now_->child, SIGKILL);
  ::kill(-now_->child, SIGKILL);
}

// Names the missing ranks, since ranks that wait in MPI's start cannot identify them.
void Job::name_missing() {
  now_->missing_named = true;
  const LauncherLines& lines = now_->start.lines;
  const std::vector<RankProcess> here = ranks_among(descendants_of(now_->child));
  for (int rank = 0; rank < now_->start.ranks; ++rank) {
    const auto own = std::ranges::find_if(
        here, [&](const RankProcess& process) { return process.rank == rank && process.stopped; });
    const pid_t stopped = own != here.end() ? own->pid : processes_.stopped_process(rank);
    if (lines.started().contains(rank) && stopped == 0) continue;
    say("rank " + std::to_string(rank) + " is missing: " +
        (stopped != 0 ? "its process " + std::to_string(stopped) + " is stopped"
         : lines.up().contains(rank) || here.empty() ? "it has not reached zero::run()"
                                                     : "the launcher has not started it"));
  }
}

// Gives up after a while if other processes keep the output open. Ranks that a launcher leaves
// behind may still report.
void Job::finish_output() {
  pollfd output{now_->output, POLLIN, 0};
  while (now_->open) {
    const bool all_up = std::ssize(now_->start.lines.up()) >= now_->start.ranks;
    const int wait = now_->start.lines.undecided() ? moment.count()
                     : all_up                      ? aftermath.count()
                                                   : late_reports.count();
    if (poll(&output, 1, wait) > 0)
      now_->open = take_output();
    else if (now_->start.lines.undecided())
      show(now_->start.lines.pause());
    else
      break;
  }
  show(now_->start.lines.take_held());
  take_reports();
}

// Ranks may have survived a killed launcher, and the launcher a killed script that had started it.
void Job::bury() {
  if (machine_.ended_by() != nullptr) ::kill(-now_->child, SIGKILL);
  if (now_->ended) waitpid(now_->child, &now_->status, 0);
  const auto deadline = Clock::now() + burial;
  for (processes_.update(); !processes_.all_gone() && Clock::now() < deadline;
       processes_.update()) {
    processes_.kill();
    std::this_thread::sleep_for(moment);
  }
}

JobEnd Job::end() {
  bury();
  const LauncherLines& lines = now_->start.lines;
  JobEnd job{.stop_requested = machine_.stops() > 0, .grew = machine_.grew()};
  if (job.stop_requested)
    job.code = code_after_a_stop();
  else if (machine_.code() != 0)
    job.code =
        now_->cause.value_or(0) != 0 ? *now_->cause : lines.exit_code().value_or(machine_.code());
  else if (WIFEXITED(now_->status))
    job.code = WEXITSTATUS(now_->status);
  else
    job.signal = WTERMSIG(now_->status);
  if (job.stop_requested) say_what_is_saved(job);
  now_.reset();
  return job;
}

// Killed ranks make peers fail: only earlier reports count.
int Job::code_after_a_stop() const {
  const LauncherLines& lines = now_->start.lines;
  const bool ended = machine_.ended_by() != nullptr;
  const int code = !now_->ended || !WIFEXITED(now_->status) ? -1 : WEXITSTATUS(now_->status);
  if (code == stopped_saved || (code == 0 && !ended)) return code;
  const int cause = ended ? now_->cause.value_or(0) : lines.exit_code().value_or(0);
  if (is_cause(cause)) return cause;
  const bool saved = lines.saved() && lines.saved() != now_->saved_before_stop;
  return now_->asked && !ended && saved ? stopped_saved : stopped_unsaved;
}

std::string Job::stop_text() const {
  const auto found =
      std::ranges::find(signal_names, stop_signal_, [](auto& each) { return each.first; });
  return "stopped by " + std::string(found == signal_names.end() ? "a signal" : found->second);
}

void Job::say_what_is_saved(const JobEnd& end) {
  const LauncherLines& lines = now_->start.lines;
  const auto step = std::max(lines.step(), std::max(lines.saved(), lines.resumed()));
  std::string text =
      stop_text() + (step ? " after step " + std::to_string(*step) : ", before the first step");
  if (end.code == 0)
    text += ", when the program had ended";
  else if (lines.saved())
    text += ": the newest checkpoint is that of step " + std::to_string(*lines.saved()) + ", in " +
            lines.saved_in();
  else if (lines.resumed())
    text += ": nothing was saved since the checkpoint of step " + std::to_string(*lines.resumed());
  else
    text += ": no checkpoint was saved";
  say(text);
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
  end_by_signal(job.signal, signals);
}

}  // namespace zero::tool
