// The states of a job under `zero run`, from its first start to its end, as a table: the possible
// events in each state, the actions, and the longest duration. tools/zero/README.md shows the
// table. Pure: the caller collects the facts, gives the time, and carries the actions out, so that
// tests can try events in any order.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace zero::tool {

// Exit codes of a job after a signal: whether a checkpoint has the last step (docs/exit-codes.md).
inline constexpr int stopped_saved = 20, stopped_unsaved = 21;

enum class State : std::uint8_t {
  starting,    // the launcher runs, no rank's process yet
  gathering,   // some ranks' processes
  running,     // all processes; the program prepares itself, or does not use ZeroCore
  meeting,     // a rank has reached zero::run()
  training,    // a rank can stop at its next step
  stopping,    // the ranks were asked to save and stop
  growing,     // the same, to go on with more ranks
  leaving,     // a rank has reported why the job ends, or all have gone: the launcher must follow
  ending,      // the launcher was asked to end
  killing,     // all was killed
  restarting,  // between two starts
  waiting,     // for hosts
  over
};

// In the order of precedence, if several have happened.
enum class Event : std::uint8_t {
  launcher_gone,
  stop,        // a further signal asks for the end
  stopped,     // such a signal has come before
  goes_on,     // a rank makes another step after it was asked to stop
  unwanted,    // a host with ranks does not answer, or the caller needs no more
  hopeless,    // there must be no further start
  placed,      // all is ready for the next start
  unplaced,    // too few slots are left
  deadline,    // the state has reached its time limit
  failed,      // a rank, or the launcher, has reported why the job ends
  all_left,    // no process of a rank is left
  one_left,    // a rank's process has gone
  stoppable,   // a rank can stop at its next step
  meets,       // a rank has reached zero::run()
  met,         // all have
  all_seen,    // the processes of all ranks have come up
  first_seen,  // that of one rank has
  bigger,      // more ranks are possible than run, and a checkpoint was saved since
};

enum class Action : std::uint8_t {
  none,
  start,  // start the launcher
  ask,    // ask the ranks to save and stop: SIGUSR2
  pass,   // SIGTERM to the launcher, which ends the ranks
  end,    // SIGKILL to the ranks, SIGTERM to the launcher
  kill,   // SIGKILL to both
};

struct Rule {
  State state;
  Event event;
  Action action;
  State next;
  int code = 0;                // of the job from then on, unless a rank reports another code
  std::string_view says = {};  // to the user
};
std::span<const Rule> rules();

struct JobLimits {
  using seconds = std::chrono::seconds;
  seconds start{120};  // from the launcher's start to the first rank's process
  seconds meet{120};   // of the ranks' own limit for the meeting
  seconds stop{120};   // from a request to stop to the end
};
// The time limit of a state. None for the two states of a working program, which takes its own
// time: ZeroCore's ranks limit all waits (zero_core.time_limit_seconds).
std::optional<std::chrono::seconds> bound_of(State state, const JobLimits& limits);

// The facts at one moment. Those of a start become false with the next start.
struct JobFacts {
  bool first_seen = false, all_seen = false, one_left = false, all_left = false;
  bool meets = false, met = false, stoppable = false, goes_on = false, failed = false;
  bool launcher_gone = false, unwanted = false, bigger = false;
  int stops = 0;                                            // signals since the first start
  bool hopeless = false, placed = false, unplaced = false;  // between two starts
};

class JobMachine {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Begins in `restarting`, before the first start.
  JobMachine(const JobLimits& limits, Time now) : limits_(limits), since_(now) {}

  // Moves to the state of the first rule that applies now, and returns the rule; null: none. Call
  // until null, and carry out each rule's action.
  const Rule* next(const JobFacts& facts, Time now);

  State state() const { return state_; }
  // When the state must have been left; nothing: see bound_of().
  std::optional<Time> deadline() const;
  // Number of signals that have counted.
  int stops() const { return stops_; }
  // The exit code of the rules so far in this start; 0: the launcher's own counts.
  int code() const { return code_; }
  // The first rule that ended this start; null: ended by itself.
  const Rule* ended_by() const { return ended_by_; }
  // The ranks were asked to stop in order to grow.
  bool grew() const { return grew_; }
  // Ranks have reported the time limit of the meeting.
  void limit_meeting(std::chrono::seconds limit) { limits_.meet = limit; }

 private:
  bool happened(Event event, const JobFacts& facts, Time now) const;

  JobLimits limits_;
  State state_ = State::restarting;
  Time since_;
  int stops_ = 0, code_ = 0;
  bool grew_ = false;
  const Rule* ended_by_ = nullptr;
};

std::string_view name_of(State state);
std::string_view name_of(Event event);
std::string_view name_of(Action action);

}  // namespace zero::tool
