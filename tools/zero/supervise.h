// Runs a job: turns processes, signals, output and time into the facts of the states
// (job_states.h), and carries out the actions of the rules. The launcher has this process's
// standard output, and by ending determines the exit code. Standard error passes through a filter
// (launcher_lines.h).
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/job_processes.h"
#include "tools/zero/job_signals.h"
#include "tools/zero/job_states.h"
#include "tools/zero/launcher_lines.h"
#include "tools/zero/terminal_input.h"

namespace zero::tool {

// The end of a start: its exit code, or the signal that ended the launcher.
struct JobEnd {
  int code = 0, signal = 0;
  bool stop_requested = false;  // by a signal to this process that asks for the end
  bool grew = false;            // the ranks were asked to stop, to go on with more
};

// Writes to standard error; waits if that is a full pipe.
void write_text(std::string_view text);
void write_line(const std::string& text);  // the text and a line break

// Everything else that concerns a job, called from Job's functions.
class JobCompanion {
 public:
  virtual ~JobCompanion() = default;
  virtual void add_sources(std::vector<pollfd>&) const {}
  // Called at least every tick_ms.
  virtual void serve() {}
  static constexpr int tick_ms = 100;
  // Adds facts about hosts: `unwanted`, `bigger`.
  virtual void add_facts(JobFacts&) const {}
  // Says why the job is unwanted; "" if that need not be said.
  virtual std::string reason_to_end() const { return ""; }
  // Takes the report of a process that is not on this host.
  virtual void take_process(const ReportedProcess&) {}
  // The ranks with a reported process on other hosts, and how many have not ended.
  struct Elsewhere {
    int ranks = 0, left = 0;
  };
  virtual Elsewhere elsewhere() const { return {}; }
  // Asks the ranks on other hosts to stop in order, or kills them. ask() returns false on failure.
  virtual bool ask() { return false; }
  virtual void kill() {}
  // Takes text of the job's standard error, and messages about the job.
  virtual void show(std::string_view text) { write_text(text); }
};

struct JobStart {
  std::vector<std::string> command;
  int ranks = 1;
  LauncherLines& lines;
};

class Job {
 public:
  using Clock = std::chrono::steady_clock;
  Job(const JobSignals& signals, const JobLimits& limits, JobCompanion& companion);
  ~Job();
  Job(const Job&) = delete;

  // Starts the launcher and waits for its end. Returns nothing, with errno set, if the start fails.
  // A signal since the last start ends the job before that.
  std::optional<JobEnd> run(JobStart start);

  // Serves all sources between two starts until done() is true, this much time has passed or the
  // job is over. Returns the value of done().
  bool serve_until(Clock::duration limit, const std::function<bool()>& done);
  // There are too few slots: serves all sources until done() is true. Returns false if the job is
  // over before, since nobody waits for longer.
  bool wait_for_slots(const std::function<bool()>& done);
  bool is_over() const { return machine_.state() == State::over; }
  bool stop_requested() const { return machine_.stops() > 0; }
  // "stopped by SIGTERM"
  std::string stop_text() const;
  // Whether a rule of this state ended the last start.
  bool was_ended_in(State state) const {
    return machine_.ended_by() != nullptr && machine_.ended_by()->state == state;
  }

 private:
  bool launch();
  void become_command(const std::array<int, 2>& failure);
  void pump(int longest_ms);
  void take_signals();
  void pass_on(int number);
  bool take_output();
  void take_what_came_before();
  void take_reports();
  int milliseconds_to_wait(int longest_ms) const;
  void show_held_lines(bool silent);
  void update_facts();
  void find_unreported_ranks();
  void apply_rules();
  void perform(const Rule& rule);
  void ask();
  void kill_all();
  void name_missing();
  void say_what_is_saved(const JobEnd& end);
  void finish_output();
  void bury();
  JobEnd end();
  int code_after_a_stop() const;
  void show(std::string_view text) { companion_.show(text); }
  void say(std::string_view text) { show("zero run: " + std::string(text) + "\n"); }

  const JobSignals& signals_;
  JobCompanion& companion_;
  JobMachine machine_;
  JobFacts facts_;
  int stop_signal_ = 0;   // the first that asked for the end
  bool hung_up_ = false;  // a terminal that closes may say so twice
  JobProcesses processes_;

  // State of a single start.
  struct Launched;
  std::unique_ptr<Launched> now_;
};

// Ends this process with the job's exit code or signal.
[[noreturn]] void end_like(const JobEnd& job, const JobSignals& signals);

}  // namespace zero::tool
