#include "tools/zero/restarts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "tools/zero/host_agent.h"
#include "tools/zero/host_links.h"
#include "tools/zero/job_command.h"
#include "tools/zero/keepers.h"
#include "tools/zero/launcher_lines.h"
#include "tools/zero/process.h"
#include "tools/zero/program_config.h"
#include "tools/zero/supervise.h"
#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/generation.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds hosts_limit{20};   // until all hosts have answered at first
constexpr seconds keeper_limit{5};   // until the keepers are ready
constexpr seconds search_limit{10};  // until a copy is found; peers may take 5 s
constexpr seconds end_limit{10};     // until remaining processes of a failed job end
// A host that answers again must do so for this long before the job grows.
constexpr seconds steady{5};
// Launchers return 128 + N for a rank killed by signal N, from 1 to 64. Higher codes are the
// launcher's own: Open MPI's mpirun has lost a daemon.
constexpr int signal_of_code = 128, last_signal = 64;

void report(const std::string& text) {
  write_line("zero run: " + text);
}

std::string seconds_text(Clock::duration time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", std::chrono::duration<double>(time).count());
  return text.data();
}

// Returns the remote shell that Open MPI would use: the first of a list separated by colons.
std::vector<std::string> remote_shell(const LaunchRequest& launch) {
  std::string agent;
  for (const char* variable : {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"})
    if (const char* value = std::getenv(variable); value != nullptr) agent = value;
  const std::vector<std::string>& given = launch.launcher_arguments;
  for (std::size_t i = 0; i + 1 < given.size(); ++i)
    if (given[i] == "plm_rsh_agent" || given[i] == "plm_ssh_agent") agent = given[i + 1];
  const std::vector<std::string> words = words_of(agent.substr(0, agent.find(" : ")));
  if (!words.empty()) return words;
  return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
}

HostLinks::Reach reach(const RestartRequest& request, const std::string& job, bool has_keepers) {
  std::vector<std::string> agent{own_program(), "host-agent", job};
  if (has_keepers) agent.emplace_back("--keeper");
  if (request.machine.scheduler == "Slurm")
    return [agent](const std::string& host) {
      std::vector<std::string> command{"srun",       "--overlap",         "--nodes=1",
                                       "--ntasks=1", "--mem=0",           "--unbuffered",
                                       "--quiet",    "--nodelist=" + host};
      command.insert(command.end(), agent.begin(), agent.end());
      return command;
    };
  return [shell = remote_shell(request.launch), line = quote_command(agent),
          hosts = request.launch.hosts](const std::string& name) {
    const auto host = std::ranges::find(hosts, name, &Host::name);
    std::vector<std::string> command = shell;
    command.push_back(host->user.empty() ? name : host->user + "@" + name);
    command.push_back(line);
    return command;
  };
}

std::vector<std::string> far_hosts(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts)
    if (!host.local) names.push_back(host.name);
  return names;
}

class Restarts : public JobCompanion {
 public:
  Restarts(const RestartRequest& request, const JobSignals& signals)
      : request_(request),
        job_name_(checkpoint::random_id().substr(0, 16)),
        has_keepers_(may_copy_to_peers(request.launch.arguments)),
        links_(far_hosts(request.launch.hosts), reach(request, job_name_, has_keepers_)),
        recovery_(request.recovery, request.launch.hosts,
                  refusal_of_ranks(request.launch.arguments)),
        job_(signals, request.limits, *this) {
    if (has_keepers_) keepers_.emplace(job_name_, links_, request.launch.hosts);
  }

  JobEnd run();

  void add_sources(std::vector<pollfd>& sources) const override {
    links_.add_sources(sources);
    if (keepers_) keepers_->add_sources(sources);
  }
  void serve() override;
  void add_facts(JobFacts& facts) const override;
  std::string reason_to_end() const override;
  void take_process(const ReportedProcess& report) override { links_.send(report); }
  Elsewhere elsewhere() const override {
    const HostLinks::Watched watched = links_.watched();
    return {watched.ranks, watched.left};
  }
  bool ask() override { return links_.ask(); }
  void kill() override { links_.end_job(); }

 private:
  void find_copy();
  std::optional<std::int64_t> kept_step() const;
  bool place();
  bool place_or_wait();
  void report_start() const;
  JobEnd start();
  void tell_kept_steps() const;
  void end_remains();
  bool is_finished(const JobEnd& end) const;
  bool has_started_over() const;
  int possible_ranks() const;
  void look_for_growth();
  std::string lost_host() const;
  std::string name_of(int rank) const;
  JobFailure failure_of(const JobEnd& end) const;
  void add_cause(int launcher_code, JobFailure& failure) const;
  void report_failure(const JobFailure& failure) const;
  void report_progress();

  const RestartRequest& request_;
  const std::string job_name_;
  const bool has_keepers_;
  HostLinks links_;
  std::optional<Keepers> keepers_;
  Recovery recovery_;
  Job job_;

  std::int64_t generation_ = 0;
  bool in_start_ = false;
  bool grows_ = false;  // the next start follows a stop to grow
  Placement placement_;
  std::unique_ptr<LauncherLines> lines_;  // of this start
  // The steps of the newest checkpoint, and after a failure of the newest copy in memory.
  std::optional<std::int64_t> saved_, copied_;
  std::map<std::string, std::int64_t> kept_;  // LauncherLines::kept() of all starts
  bool had_kept_ = false;                     // before this start
  // Times after the last failure: failure noticed, job ended, pause ended.
  Clock::time_point failed_, ended_, restarted_;
  // Times in this start, 0 if not yet: all ranks had started, a failure was noticed.
  Clock::time_point started_{}, noticed_{};
  // More ranks than now are possible since this time, when this was saved.
  std::set<std::string> answering_;  // hosts
  int possible_ = 0;                 // ranks there
  std::optional<Clock::time_point> bigger_since_;
  std::optional<std::int64_t> saved_when_bigger_;
  bool has_copied_ = false;  // in any start
  bool goes_on_ = true;      // has made a step since the last failure
};

JobEnd Restarts::run() {
  job_.serve_until(hosts_limit, [this] { return links_.settled(); });
  JobEnd end{.code = TopologyError::code};
  while (place_or_wait()) {
    end = start();
    end_remains();
    if (has_started_over() && end.code == PeerFailed::code) end.code = LoadError::code;
    if (is_finished(end)) return end;
    grows_ =
        end.grew && end.signal == 0 && (end.code == stopped_saved || end.code == stopped_unsaved);
    if (grows_) continue;
    const JobFailure failure = failure_of(end);
    find_copy();
    report_failure(failure);
    if (!recovery_.note(failure)) break;
    if (!recovery_.lost_slot().empty())
      report(recovery_.lost_slot() + ": it is used again only if --min-ranks needs it");
    const seconds pause = recovery_.pause();
    goes_on_ = false;
    if (pause > seconds(0)) report("pause of " + count_of(pause.count(), "second"));
    job_.serve_until(pause, [] { return false; });
    restarted_ = Clock::now();
  }
  if (job_.stop_requested()) {
    std::string text = job_.stop_text() + " before the next start";
    for (const auto& [directory, step] : kept_)
      text +=
          "; the newest checkpoint is that of step " + std::to_string(step) + ", in " + directory;
    report(text);
    return {.code = stopped_unsaved, .stop_requested = true};
  }
  report("no further start: " + recovery_.reason_to_stop());
  return end;
}

bool Restarts::is_finished(const JobEnd& end) const {
  const bool good = end.code == 0 || end.code == stopped_saved || end.code == stopped_unsaved;
  return end.stop_requested || (end.signal == 0 && good && !(end.grew && end.code != 0));
}

// Finds the newest copy that the keepers of the remaining hosts hold. The ranks choose by the same
// rule; this is for the report.
void Restarts::find_copy() {
  copied_.reset();
  if (!keepers_) return;
  keepers_->begin(generation_ + 1, {});
  keepers_->search();
  job_.serve_until(search_limit, [this] { return keepers_->newest().has_value(); });
  if (const auto step = keepers_->newest(); step && *step >= 0) copied_ = step;
}

// The step from which the next start continues.
std::optional<std::int64_t> Restarts::kept_step() const {
  return std::max(saved_, copied_);
}

// Chooses the slots of the next start. Returns false if there are too few.
bool Restarts::place() {
  for (const std::string& host : far_hosts(request_.launch.hosts)) {
    const bool answers = links_.answers(host);
    if (!recovery_.set_available(host, answers)) continue;
    report("host " + host +
           (answers ? " answers again: it is used from now on" : " is not used until it answers"));
  }
  placement_ = recovery_.place();
  if (placement_.ranks == 0) return false;
  if (recovery_.forgiven() > 0)
    report(count_of(recovery_.forgiven(), "slot") +
           (recovery_.forgiven() == 1 ? " that has failed is" : " that have failed are") +
           " used again, because --min-ranks is " + std::to_string(request_.recovery.min_ranks));
  ++generation_;
  report_start();
  return true;
}

// Without enough slots waits until enough hosts answer again.
bool Restarts::place_or_wait() {
  if (job_.is_over()) return false;
  if (place()) return true;
  const std::vector<std::string> far = far_hosts(request_.launch.hosts);
  if (std::ranges::all_of(far, [this](const auto& host) { return links_.answers(host); }))
    return false;
  report(recovery_.reason_to_stop() + ": waiting for lost hosts, at most " +
         count_of(bound_of(State::waiting, request_.limits)->count() / 60, "minute"));
  return job_.wait_for_slots([this] { return place(); });
}

void Restarts::report_start() const {
  if (generation_ == 1 && placement_.ranks == request_.recovery.ranks) return;
  const std::string which = generation_ == 1 ? "start"
                            : grows_         ? "start to grow"
                                     : "restart " + std::to_string(recovery_.restarts()) + " of " +
                                           std::to_string(request_.recovery.restarts);
  report(which + ": generation " + std::to_string(generation_) + ", with " +
         count_of(placement_.ranks, "rank") + " of " + std::to_string(request_.recovery.ranks) +
         (generation_ == 1   ? ""
          : copied_ > saved_ ? ", from the copy of step " + std::to_string(*copied_) + " in memory"
          : saved_           ? ", from the checkpoint of step " + std::to_string(*saved_)
                             : ", from the newest checkpoint, if there is one"));
}

JobEnd Restarts::start() {
  const checkpoint::Generation own{job_name_, generation_};
  setenv(checkpoint::generation_variable, own.text().c_str(), 1);
  tell_kept_steps();
  had_kept_ = !kept_.empty();
  LaunchRequest launch = request_.launch;
  launch.ranks = placement_.ranks;
  launch.hosts = placement_.hosts;
  // Open MPI 4 waits 2 s by default between SIGTERM and SIGKILL to the other ranks.
  const std::string patience = "odls_base_sigkill_timeout";
  std::vector<std::string>& given = launch.launcher_arguments;
  if (request_.launcher.major == 4 && std::ranges::find(given, patience) == given.end())
    given.insert(given.end(), {"--mca", patience, "0"});
  if (keepers_) {
    job_.serve_until(keeper_limit, [this] { return keepers_->ready(); });
    keepers_->begin(generation_, placement_.hosts);
  }
  JobCommand command(launch, request_.machine, request_.launcher,
                     hostfile_lines(launch.hosts, request_.launcher.kind));
  if (generation_ == 1)
    for (const std::string& note : command.notes()) report(note);
  write_line(command.text());
  lines_ = std::make_unique<LauncherLines>(request_.verbose, true);
  started_ = noticed_ = {};
  bigger_since_.reset();
  answering_.clear();
  in_start_ = true;
  const std::optional<JobEnd> end = job_.run({command.words(), placement_.ranks, *lines_});
  in_start_ = false;
  if (!end)
    throw TopologyError("cannot start " + request_.launcher.path + ": " + std::strerror(errno));
  ended_ = Clock::now();
  failed_ = noticed_ == Clock::time_point{} ? ended_ : noticed_;
  return *end;
}

// For the ranks, which refuse to start from less.
void Restarts::tell_kept_steps() const {
  std::string text;
  for (const auto& [directory, step] : kept_)
    text += (text.empty() ? "" : "\t") + std::to_string(step) + " " + directory;
  setenv(checkpoint::kept_variable, text.c_str(), 1);
}

void Restarts::serve() {
  links_.serve();
  if (keepers_) keepers_->serve();
  if (!in_start_) return;
  const auto now = Clock::now();
  if (started_ == Clock::time_point{} && std::ssize(lines_->started()) == placement_.ranks)
    started_ = now;
  if (noticed_ == Clock::time_point{} && (lines_->failing() || !lost_host().empty()))
    noticed_ = now;
  if (lines_->resumed() && lines_->resumed() != copied_) saved_ = lines_->resumed();
  if (lines_->saved()) saved_ = lines_->saved();
  for (const auto& [directory, step] : lines_->kept()) kept_[directory] = step;
  if (lines_->copied() && !std::exchange(has_copied_, true))
    report("the first copy in memory is complete: of step " + std::to_string(*lines_->copied()));
  if (lines_->step() && !has_started_over() && !std::exchange(goes_on_, true)) report_progress();
  look_for_growth();
}

// The number of ranks possible on the hosts that answer now.
int Restarts::possible_ranks() const {
  Recovery then = recovery_;
  for (const std::string& host : far_hosts(request_.launch.hosts))
    then.set_available(host, links_.answers(host));
  return then.place().ranks;
}

void Restarts::look_for_growth() {
  if (!request_.grows || placement_.ranks == request_.recovery.ranks) return;
  std::set<std::string> hosts;
  for (const std::string& host : far_hosts(request_.launch.hosts))
    if (links_.answers(host)) hosts.insert(host);
  if (std::exchange(answering_, hosts) != hosts) possible_ = possible_ranks();
  if (possible_ <= placement_.ranks) return bigger_since_.reset();
  if (bigger_since_) return;
  bigger_since_ = Clock::now();
  saved_when_bigger_ = lines_->saved();
}

void Restarts::add_facts(JobFacts& facts) const {
  if (!in_start_) return;
  facts.unwanted = !lost_host().empty() || has_started_over();
  facts.bigger = bigger_since_ && Clock::now() - *bigger_since_ >= steady &&
                 lines_->saved() != saved_when_bigger_;
}

// A program that does not load its checkpoint would repeat everything in silence.
bool Restarts::has_started_over() const {
  return had_kept_ && lines_->step() && !lines_->resumed();
}

void Restarts::report_progress() {
  const auto now = Clock::now();
  report("step " + std::to_string(*lines_->step()) + " done, " + seconds_text(now - failed_) +
         " after the failure was noticed: end of the job " + seconds_text(ended_ - failed_) +
         ", pause " + seconds_text(restarted_ - ended_) + ", start of the ranks " +
         seconds_text(started_ - restarted_) + ", load and first step " +
         seconds_text(now - started_));
}

std::string Restarts::lost_host() const {
  for (const Host& host : placement_.hosts)
    if (!links_.answers(host.name)) return host.name;
  return "";
}

std::string Restarts::reason_to_end() const {
  if (const std::string host = lost_host(); !host.empty())
    return "zero run: host " + host + " does not answer: the job is ended";
  return has_started_over()
             ? "zero run: the program begins at its first step again, and has not loaded the "
               "checkpoint of step " +
                   std::to_string(kept_.begin()->second) + " in " + kept_.begin()->first +
                   ": the job is ended; a program must resume by itself (train_gpt --checkpoint, "
                   "engine.resume(), load_checkpoint())"
             : "";
}

// Ranks on an unreachable host end by themselves when the agent's lease is over.
void Restarts::end_remains() {
  links_.end_job();
  job_.serve_until(end_limit, [this] { return links_.all_ended(); });
}

std::string Restarts::name_of(int rank) const {
  const std::string name = "rank " + std::to_string(rank);
  const auto slot = recovery_.slot_of(rank);
  if (!slot || slot->host.empty()) return name;
  return name + " (slot " + std::to_string(slot->number) + " of host " + slot->host + ")";
}

JobFailure Restarts::failure_of(const JobEnd& end) const {
  JobFailure failure;
  failure.step = std::max(lines_->step(), lines_->saved());  // ranks do not report every step
  failure.resumed = lines_->resumed();
  if (const std::string host = lost_host(); !host.empty()) {
    failure.subject = "host " + host;
    failure.cause = "does not answer";
    failure.from_outside = true;
  } else if (has_started_over()) {
    failure.subject = "the program";
    failure.cause = "does not load its checkpoint";
    failure.permanent = true;
  } else if (job_.was_ended_in(State::leaving)) {
    failure.subject = "the launcher";
    failure.cause = "has not noticed that ranks ended";
    failure.from_outside = true;
  } else if (job_.was_ended_in(State::starting) || job_.was_ended_in(State::gathering) ||
             job_.was_ended_in(State::meeting)) {
    failure.subject = "the start";
    failure.cause = "has taken too long";
    failure.from_outside = true;
  } else if (end.signal != 0) {
    failure.subject = "the launcher";
    failure.cause = "was ended by signal " + std::to_string(end.signal);
    failure.from_outside = true;
  } else {
    failure.rank = lines_->failed_rank();
    failure.subject = failure.rank ? name_of(*failure.rank) : "a rank";
    add_cause(end.code, failure);
  }
  return failure;
}

// Adds the cause, from the rank's signal or exit code, otherwise from the launcher's exit code.
void Restarts::add_cause(int launcher_code, JobFailure& failure) const {
  std::optional<int> signal = lines_->signal();
  if (!signal && launcher_code > signal_of_code && launcher_code <= signal_of_code + last_signal)
    signal = launcher_code - signal_of_code;
  const int code = lines_->exit_code().value_or(launcher_code);
  const bool suspect = lines_->suspect().has_value();
  failure.blames_slot = signal || suspect || code == PeerFailed::code || code == StalledError::code;
  failure.from_outside = signal == SIGKILL || suspect;
  if (suspect) {
    failure.cause = "computed other values than other ranks (code " + std::to_string(code) + ")";
    return;
  }
  if (signal) {
    failure.cause = "was ended by signal " + std::to_string(*signal);
    return;
  }
  if (code > signal_of_code + last_signal) {
    failure.subject = "the launcher";
    failure.cause = "has lost its daemon on a host (code " + std::to_string(code) + ")";
    failure.from_outside = true;
    return;
  }
  failure.cause = code == StalledError::code ? "hangs, or its host does (code 18)"
                  : code == PeerFailed::code ? "died (code 17)"
                                             : "ended with code " + std::to_string(code);
  failure.permanent =
      code == ConfigError::code || code == DisagreementError::code || code == UsageError::code;
}

void Restarts::report_failure(const JobFailure& failure) const {
  report(
      failure.subject + " " + failure.cause +
      (failure.step ? ", after step " + std::to_string(*failure.step) : ", before the first step"));
  if (has_copied_ && !copied_)
    report(keepers_->newest()
               ? "no complete copy is left in memory"
               : "the keeper of this machine has not found the newest copy in memory");
  const std::int64_t kept = kept_step().value_or(0);
  // The ranks report at most 20 steps a second, so later steps may have been made.
  if (!failure.step || *failure.step <= kept) return report("no step that was reported is lost");
  const std::string repeated = count_of(*failure.step - kept, "step") + " since the ";
  if (!kept_step())
    return report(repeated +
                  "start will be repeated: no checkpoint was reported (train_gpt --checkpoint)");
  report(repeated + (copied_ > saved_ ? "copy" : "checkpoint") + " of step " +
         std::to_string(kept) + " will be repeated");
}

}  // namespace

void run_with_restarts(const RestartRequest& request, const JobSignals& signals) {
  const JobEnd end = Restarts(request, signals).run();
  end_like(end, signals);
}

}  // namespace zero::tool
