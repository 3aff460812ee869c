#include "tools/zero/restarts.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "tools/zero/host_agent.h"
#include "tools/zero/host_links.h"
#include "tools/zero/job_command.h"
#include "tools/zero/job_processes.h"
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

constexpr seconds hosts_limit{20};                // until all hosts have answered at first
constexpr std::chrono::minutes return_limit{10};  // until a lost host answers again
constexpr seconds launcher_limit{10};             // until mpirun exits after its ranks
constexpr std::chrono::minutes start_window{2};   // in which the ranks start
constexpr seconds keeper_limit{5};                // until the keepers are ready
constexpr seconds search_limit{10};               // until a copy is found; peers may take 5 s
constexpr seconds end_limit{10};                  // until remaining processes of a failed job end
constexpr int signal_of_code = 128;  // launchers return 128 + N for a rank killed by signal N

void report(const std::string& text) {
  write_line("zero run: " + text);
}

std::string seconds_text(Clock::duration time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", std::chrono::duration<double>(time).count());
  return text.data();
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
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
        signals_(signals),
        job_(checkpoint::random_id().substr(0, 16)),
        has_keepers_(may_copy_to_peers(request.launch.arguments)),
        links_(far_hosts(request.launch.hosts), reach(request, job_, has_keepers_)),
        recovery_(request.recovery, request.launch.hosts,
                  refusal_of_ranks(request.launch.arguments)) {
    if (has_keepers_) keepers_.emplace(job_, links_, request.launch.hosts);
  }

  JobEnd run();

  void add_sources(std::vector<pollfd>& sources) const override {
    links_.add_sources(sources);
    if (keepers_) keepers_->add_sources(sources);
  }
  void serve() override;
  std::string reason_to_end() const override;

 private:
  void serve_hosts();
  void serve_until(Clock::time_point end, const std::function<bool()>& done);
  void find_copy();
  std::optional<std::int64_t> kept_step() const;
  bool place();
  JobEnd start();
  void count_ranks(Clock::time_point now);
  bool outlives_ranks() const;
  void end_remains();
  std::string lost_host() const;
  std::string name_of(int rank) const;
  JobFailure failure_of(const JobEnd& end) const;
  void add_cause(int launcher_code, JobFailure& failure) const;
  void report_failure(const JobFailure& failure) const;
  void report_progress();
  bool await_host();
  bool pause();
  bool take_stop();

  const RestartRequest& request_;
  const JobSignals& signals_;
  const std::string job_;
  const bool has_keepers_;
  HostLinks links_;
  std::optional<Keepers> keepers_;
  Recovery recovery_;

  std::int64_t generation_ = 0;
  Placement placement_;
  std::unique_ptr<LauncherLines> lines_;  // of this start
  // The steps of the newest checkpoint, and after a failure of the newest copy in memory.
  std::optional<std::int64_t> saved_, copied_;
  // Times after the last failure: it was noticed, the job ended, the pause ended.
  Clock::time_point failed_, ended_, restarted_;
  // Times in this start, 0 if not yet: it began, all ranks had started, a failure was noticed, the
  // ranks were last counted, ranks were missing.
  Clock::time_point begun_, started_{}, noticed_{}, counted_{}, gone_{};
  bool seen_ = false;        // a rank of this start has been counted
  bool stopped_ = false;     // by a signal between two starts
  bool has_copied_ = false;  // in any start
  bool goes_on_ = true;      // has made a step since the last failure
};

JobEnd Restarts::run() {
  serve_until(Clock::now() + hosts_limit, [this] { return links_.settled(); });
  JobEnd end{.code = TopologyError::code};
  while (place() || (await_host() && place())) {
    end = start();
    end_remains();
    if (end.stop_requested || (end.signal == 0 && (end.code == 0 || end.code == stopped_saved ||
                                                   end.code == stopped_unsaved)))
      return end;
    const JobFailure failure = failure_of(end);
    find_copy();
    report_failure(failure);
    if (!recovery_.note(failure)) break;
    if (!recovery_.lost_slot().empty())
      report(recovery_.lost_slot() + ": it is used again only if --min-ranks needs it");
    if (!pause()) break;
  }
  if (stopped_) {
    report("stopped by a signal before the next start");
    return {.code = stopped_unsaved, .signal = 0, .stop_requested = true};
  }
  report("no further start: " + recovery_.reason_to_stop());
  return end;
}

void Restarts::serve_hosts() {
  links_.serve();
  if (keepers_) keepers_->serve();
}

// Serves the other hosts until this time, or until done() is true.
void Restarts::serve_until(Clock::time_point end, const std::function<bool()>& done) {
  while (!done() && Clock::now() < end) {
    std::vector<pollfd> sources;
    add_sources(sources);
    poll(sources.data(), sources.size(), tick_ms);
    serve_hosts();
  }
}

// Finds the newest copy that the keepers of the remaining hosts hold. The ranks choose it by the
// same rule; this is for the report.
void Restarts::find_copy() {
  copied_.reset();
  if (!keepers_) return;
  keepers_->begin(generation_ + 1, {});
  keepers_->search();
  serve_until(Clock::now() + search_limit, [this] { return keepers_->newest().has_value(); });
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
  if (generation_ == 1 && placement_.ranks == request_.recovery.ranks) return true;
  const std::string which = generation_ == 1
                                ? "start"
                                : "restart " + std::to_string(recovery_.restarts()) + " of " +
                                      std::to_string(request_.recovery.restarts);
  report(which + ": generation " + std::to_string(generation_) + ", with " +
         count_of(placement_.ranks, "rank") + " of " + std::to_string(request_.recovery.ranks) +
         (generation_ == 1   ? ""
          : copied_ > saved_ ? ", from the copy of step " + std::to_string(*copied_) + " in memory"
          : saved_           ? ", from the checkpoint of step " + std::to_string(*saved_)
                             : ", from the newest checkpoint, if there is one"));
  return true;
}

JobEnd Restarts::start() {
  const checkpoint::Generation own{job_, generation_};
  setenv(checkpoint::generation_variable, own.text().c_str(), 1);
  LaunchRequest launch = request_.launch;
  launch.ranks = placement_.ranks;
  launch.hosts = placement_.hosts;
  // Open MPI 4 waits 2 s by default between SIGTERM and SIGKILL to the other ranks.
  const std::string patience = "odls_base_sigkill_timeout";
  std::vector<std::string>& given = launch.launcher_arguments;
  if (request_.launcher.major == 4 && std::ranges::find(given, patience) == given.end())
    given.insert(given.end(), {"--mca", patience, "0"});
  if (keepers_) {
    serve_until(Clock::now() + keeper_limit, [this] { return keepers_->ready(); });
    keepers_->begin(generation_, placement_.hosts);
  }
  JobCommand command(launch, request_.machine, request_.launcher,
                     hostfile_lines(launch.hosts, request_.launcher.kind), "steps");
  if (generation_ == 1)
    for (const std::string& note : command.notes()) report(note);
  write_line(command.text());
  lines_ = std::make_unique<LauncherLines>(request_.verbose, true);
  begun_ = Clock::now();
  started_ = noticed_ = gone_ = {};
  seen_ = false;
  const std::optional<JobEnd> end =
      supervise(command.words(), placement_.ranks, *lines_, signals_, this);
  if (!end)
    throw TopologyError("cannot start " + request_.launcher.path + ": " + std::strerror(errno));
  ended_ = Clock::now();
  failed_ = noticed_ == Clock::time_point{} ? ended_ : noticed_;
  return *end;
}

void Restarts::serve() {
  serve_hosts();
  const auto now = Clock::now();
  if (started_ == Clock::time_point{} && std::ssize(lines_->started()) == placement_.ranks)
    started_ = now;
  if (noticed_ == Clock::time_point{} && (lines_->failing() || !lost_host().empty()))
    noticed_ = now;
  count_ranks(now);
  if (lines_->resumed() && lines_->resumed() != copied_) saved_ = lines_->resumed();
  if (lines_->saved()) saved_ = lines_->saved();
  if (lines_->copied() && !std::exchange(has_copied_, true))
    report("the first copy in memory is complete: of step " + std::to_string(*lines_->copied()));
  if (lines_->step() && !std::exchange(goes_on_, true)) report_progress();
}

// Open MPI may not notice that a rank is killed while it connects to its daemon. Then either no
// rank is left, or the others wait for it in MPI_Init. The launcher starts all ranks at the same
// time, so fewer ranks mean that one has ended, even if it was never counted.
void Restarts::count_ranks(Clock::time_point now) {
  if (now - counted_ < beat_interval) return;
  counted_ = now;
  const int ranks = ranks_of_job(job_) + links_.ranks();
  seen_ = seen_ || ranks > 0;
  const bool starting =
      now - begun_ < start_window && std::ssize(lines_->started()) < placement_.ranks;
  const bool missing = starting && ranks < placement_.ranks;
  if (!seen_ || (ranks > 0 && !missing))
    gone_ = {};
  else if (gone_ == Clock::time_point{})
    gone_ = now;
}

bool Restarts::outlives_ranks() const {
  return gone_ != Clock::time_point{} && counted_ - gone_ >= launcher_limit;
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
  return outlives_ranks()
             ? "zero run: ranks have ended, but the launcher continues: the job is ended"
             : "";
}

// Ranks on an unreachable host end by themselves when the lease of their agent is over.
void Restarts::end_remains() {
  links_.end_job();
  end_processes_of_job(job_, end_limit);
  serve_until(Clock::now() + end_limit, [this] { return links_.all_ended(); });
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
  } else if (outlives_ranks()) {
    failure.subject = "the launcher";
    failure.cause = "has not noticed that ranks ended";
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
  if (!signal && launcher_code > signal_of_code) signal = launcher_code - signal_of_code;
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
  // The ranks report at most 20 steps a second, so later ones may have been made.
  if (!failure.step || *failure.step <= kept) return report("no step that was reported is lost");
  const std::string repeated = count_of(*failure.step - kept, "step") + " since the ";
  if (!kept_step())
    return report(repeated +
                  "start will be repeated: no checkpoint was reported (train_gpt --checkpoint)");
  report(repeated + (copied_ > saved_ ? "copy" : "checkpoint") + " of step " +
         std::to_string(kept) + " will be repeated");
}

// Returns true if a lost host answers again in time.
bool Restarts::await_host() {
  const auto answer = [this] {
    int hosts = 0;
    for (const std::string& host : far_hosts(request_.launch.hosts)) hosts += links_.answers(host);
    return hosts;
  };
  const int before = answer();
  if (before == std::ssize(far_hosts(request_.launch.hosts))) return false;
  report(recovery_.reason_to_stop() + ": waiting for a lost host, at most " +
         count_of(return_limit.count(), "minute"));
  serve_until(Clock::now() + return_limit, [&] { return take_stop() || answer() > before; });
  return !stopped_ && answer() > before;
}

// Returns false if a signal since the job's end has requested a stop.
bool Restarts::pause() {
  const seconds time = recovery_.pause();
  goes_on_ = false;
  const auto end = Clock::now() + time;
  if (time > seconds(0)) report("pause of " + count_of(time.count(), "second"));
  serve_until(end, [this] { return take_stop(); });
  restarted_ = Clock::now();
  return !stopped_;
}

bool Restarts::take_stop() {
  constexpr std::array<std::uint32_t, 5> stops = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR2};
  pollfd source{signals_.descriptor(), POLLIN, 0};
  signalfd_siginfo signal{};
  while (poll(&source, 1, 0) > 0 &&
         read(source.fd, &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal))
    stopped_ = stopped_ || std::ranges::find(stops, signal.ssi_signo) != stops.end();
  return stopped_;
}

}  // namespace

void run_with_restarts(const RestartRequest& request) {
  const JobSignals signals;
  const JobEnd end = Restarts(request, signals).run();
  end_like(end, signals);
}

}  // namespace zero::tool
