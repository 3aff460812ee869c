#include "tools/zero/job_states.h"

#include <array>

#include "zero/base/error.h"

namespace zero::tool {
namespace {

using std::chrono::seconds;

// From the first rank's process to the last: launchers start them together.
constexpr seconds between_ranks{20};
// Ranks end by themselves if the meeting exceeds their own limit.
constexpr seconds meeting_slack{15};
constexpr seconds leaving_limit{15}, ending_limit{5}, killing_limit{10};
// The remains of a start end in 20 s, a copy in memory is found in 10 s, the pause takes up to 30
// s, and the keepers are ready in 5 s.
constexpr seconds between_starts{80}, waiting_limit{600};

constexpr auto make_table() {
  using enum State;
  using enum Action;
  using E = Event;
  constexpr int stalled = StalledError::code, peer = PeerFailed::code;
  return std::array{
      Rule{starting, E::launcher_gone, none, restarting},
      Rule{starting, E::stop, end, ending, stopped_unsaved},
      Rule{starting, E::unwanted, end, ending, peer},
      Rule{starting, E::deadline, end, ending, stalled, "no process of a rank has come up in time"},
      Rule{starting, E::first_seen, none, gathering},

      Rule{gathering, E::launcher_gone, none, restarting},
      Rule{gathering, E::stop, end, ending, stopped_unsaved},
      Rule{gathering, E::unwanted, end, ending, peer},
      Rule{gathering, E::deadline, end, ending, stalled, "ranks are missing"},
      Rule{gathering, E::failed, none, leaving},
      Rule{gathering, E::all_seen, none, running},

      Rule{running, E::launcher_gone, none, restarting},
      Rule{running, E::stop, pass, ending, stopped_unsaved},
      Rule{running, E::unwanted, end, ending, peer},
      Rule{running, E::failed, none, leaving},
      Rule{running, E::all_left, none, leaving},
      Rule{running, E::stoppable, none, training},
      Rule{running, E::meets, none, meeting},

      Rule{meeting, E::launcher_gone, none, restarting},
      Rule{meeting, E::stop, end, ending, stopped_unsaved},
      Rule{meeting, E::unwanted, end, ending, peer},
      Rule{meeting, E::deadline, end, ending, stalled, "the ranks have not met in time"},
      Rule{meeting, E::failed, none, leaving},
      Rule{meeting, E::one_left, none, leaving},
      Rule{meeting, E::stoppable, none, training},
      Rule{meeting, E::met, none, running},

      Rule{training, E::launcher_gone, none, restarting},
      Rule{training, E::stop, ask, stopping, stopped_unsaved,
           "the ranks are asked to stop after this step; a second signal ends them at once"},
      Rule{training, E::unwanted, end, ending, peer},
      Rule{training, E::failed, none, leaving},
      Rule{training, E::all_left, none, leaving},
      Rule{training, E::bigger, ask, growing, 0, "the ranks are asked to stop, to go on with more"},

      Rule{stopping, E::launcher_gone, none, restarting},
      Rule{stopping, E::stop, end, ending, stopped_unsaved},
      Rule{stopping, E::goes_on, pass, ending, stopped_unsaved,
           "the program continues its steps: its ranks are ended now"},
      Rule{stopping, E::unwanted, end, ending, stopped_unsaved},
      Rule{stopping, E::deadline, end, ending, stopped_unsaved,
           "the ranks have not stopped in time (--stop-limit): they are ended now"},
      Rule{stopping, E::all_left, none, leaving},

      Rule{growing, E::launcher_gone, none, restarting},
      Rule{growing, E::stop, none, stopping, stopped_unsaved,
           "the ranks stop after this step; a second signal ends them at once"},
      Rule{growing, E::goes_on, pass, ending, 0,
           "the program continues its steps: its ranks are ended now"},
      Rule{growing, E::unwanted, end, ending, peer},
      Rule{growing, E::deadline, end, ending, 0,
           "the ranks have not stopped in time (--stop-limit)"},
      Rule{growing, E::all_left, none, leaving},

      Rule{leaving, E::launcher_gone, none, restarting},
      Rule{leaving, E::stop, end, ending, stopped_unsaved},
      Rule{leaving, E::unwanted, end, ending, peer},
      Rule{leaving, E::deadline, end, ending, peer,
           "ranks have ended, but the launcher continues: the job is ended; a host may be out of "
           "reach"},

      Rule{ending, E::launcher_gone, none, restarting},
      Rule{ending, E::stop, kill, killing, stopped_unsaved},
      Rule{ending, E::deadline, kill, killing},

      Rule{killing, E::launcher_gone, none, restarting},
      Rule{killing, E::deadline, none, over, 0,
           "the launcher cannot be killed: it waits inside the system"},

      Rule{restarting, E::stop, none, over, stopped_unsaved},
      Rule{restarting, E::stopped, none, over},
      Rule{restarting, E::hopeless, none, over},
      Rule{restarting, E::placed, start, starting},
      Rule{restarting, E::unplaced, none, waiting},
      Rule{restarting, E::deadline, none, over, peer, "the next start is not ready in time"},

      Rule{waiting, E::stop, none, over, stopped_unsaved},
      Rule{waiting, E::placed, start, starting},
      Rule{waiting, E::deadline, none, over},
  };
}

constexpr std::array table = make_table();

constexpr bool is_ended_by(const Rule& rule) {
  return rule.action == Action::pass || rule.action == Action::end || rule.action == Action::kill;
}

}  // namespace

std::span<const Rule> rules() {
  return table;
}

std::optional<seconds> bound_of(State state, const JobLimits& limits) {
  using enum State;
  switch (state) {
    case starting:
      return limits.start;
    case gathering:
      return between_ranks;
    case meeting:
      return limits.meet + meeting_slack;
    case stopping:
    case growing:
      return limits.stop;
    case leaving:
      return leaving_limit;
    case ending:
      return ending_limit;
    case killing:
      return killing_limit;
    case restarting:
      return between_starts;
    case waiting:
      return waiting_limit;
    case running:
    case training:
    case over:
      break;
  }
  return std::nullopt;
}

std::optional<JobMachine::Time> JobMachine::deadline() const {
  const auto bound = bound_of(state_, limits_);
  return bound ? std::optional(since_ + *bound) : std::nullopt;
}

bool JobMachine::happened(Event event, const JobFacts& facts, Time now) const {
  using E = Event;
  switch (event) {
    case E::launcher_gone:
      return facts.launcher_gone;
    case E::stop:
      return facts.stops > stops_;
    case E::stopped:
      return stops_ > 0;
    case E::goes_on:
      return facts.goes_on;
    case E::unwanted:
      return facts.unwanted;
    case E::hopeless:
      return facts.hopeless;
    case E::placed:
      return facts.placed;
    case E::unplaced:
      return facts.unplaced;
    case E::deadline:
      return deadline() && now >= *deadline();
    case E::failed:
      return facts.failed;
    case E::all_left:
      return facts.all_left;
    case E::one_left:
      return facts.one_left;
    case E::stoppable:
      return facts.stoppable;
    case E::meets:
      return facts.meets && !facts.met;
    case E::met:
      return facts.met;
    case E::all_seen:
      return facts.all_seen;
    case E::first_seen:
      return facts.first_seen;
    case E::bigger:
      return facts.bigger;
  }
  return false;
}

const Rule* JobMachine::next(const JobFacts& facts, Time now) {
  const Rule* found = nullptr;
  for (const Rule& rule : table)
    if (rule.state == state_ && happened(rule.event, facts, now) &&
        (found == nullptr || rule.event < found->event))
      found = &rule;
  if (found == nullptr) return nullptr;
  if (found->event == Event::stop) ++stops_;
  if (found->action == Action::start) code_ = 0, grew_ = false, ended_by_ = nullptr;
  if (found->next == State::growing) grew_ = true;
  if (is_ended_by(*found) && ended_by_ == nullptr) ended_by_ = found;
  if (found->code != 0 && code_ == 0) code_ = found->code;
  state_ = found->next;
  since_ = now;
  return found;
}

std::string_view name_of(State state) {
  constexpr std::array<std::string_view, 13> names = {
      "starting", "gathering", "running", "meeting",    "training", "stopping", "growing",
      "leaving",  "ending",    "killing", "restarting", "waiting",  "over"};
  return names[static_cast<std::size_t>(state)];
}

std::string_view name_of(Event event) {
  constexpr std::array<std::string_view, 18> names = {"the launcher has gone",
                                                      "a signal",
                                                      "a signal before",
                                                      "goes on",
                                                      "unwanted",
                                                      "hopeless",
                                                      "placed",
                                                      "too few slots",
                                                      "deadline",
                                                      "a failure is reported",
                                                      "all ranks have gone",
                                                      "a rank has gone",
                                                      "a rank can stop",
                                                      "a rank meets",
                                                      "all have met",
                                                      "all ranks are up",
                                                      "a rank is up",
                                                      "more ranks are possible"};
  return names[static_cast<std::size_t>(event)];
}

std::string_view name_of(Action action) {
  constexpr std::array<std::string_view, 6> names = {"", "start", "ask", "pass", "end", "kill"};
  return names[static_cast<std::size_t>(action)];
}

}  // namespace zero::tool
