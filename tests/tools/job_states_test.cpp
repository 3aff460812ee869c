#include "tools/zero/job_states.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace zero::tool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = JobMachine::Time;

constexpr int state_count = static_cast<int>(State::over) + 1;
constexpr JobLimits limits{seconds(60), seconds(30), seconds(40)};
constexpr milliseconds tick{100};

std::string bound_text(State state) {
  switch (state) {
    case State::starting:
      return "`--start-limit` (120 s)";
    case State::meeting:
      return "the ranks' `--start-limit`, and 15 s";
    case State::stopping:
    case State::growing:
      return "`--stop-limit` (120 s)";
    case State::running:
    case State::training:
      return "the program's own time";
    case State::over:
      return "";
    default:
      return std::to_string(bound_of(state, limits)->count()) + " s";
  }
}

std::string table_of_states() {
  std::string text = "| state | at most | event: action, next state |\n|---|---|---|\n";
  for (int number = 0; number < state_count; ++number) {
    const auto state = static_cast<State>(number);
    std::vector<Rule> own;
    std::ranges::copy_if(rules(), std::back_inserter(own),
                         [&](const Rule& rule) { return rule.state == state; });
    std::ranges::stable_sort(own, {}, &Rule::event);
    text += "| **" + std::string(name_of(state)) + "** | " + bound_text(state) + " |";
    for (const Rule& rule : own)
      text += std::string(&rule == &own.front() ? " " : "; ") + std::string(name_of(rule.event)) +
              ": " + std::string(name_of(rule.action)) + (rule.action == Action::none ? "" : ", ") +
              std::string(name_of(rule.next)) +
              (rule.code != 0 ? " (" + std::to_string(rule.code) + ")" : "");
    text += " |\n";
  }
  return text;
}

// A launcher, ranks and hosts that do anything at any time, and a caller like `zero run` that sees
// them and carries actions out.
class World {
 public:
  explicit World(unsigned seed) : chance_(seed), machine_(limits, now_) { draw(); }

  void run() {
    while (!is_finished()) {
      now_ += tick;
      act();
      decide_between_starts();
      look();
      REQUIRE(now_ - Time{} < seconds(20'000));
    }
  }

  bool was_asked_twice() const { return facts_.stops > 1; }
  int code() const { return machine_.code(); }
  bool has_processes() const { return launcher_ && kind_ != Kind::unkillable; }
  std::set<const Rule*> used;

 private:
  enum class Kind { good, never_starts, ignores_requests, misses_ends, unkillable };
  struct Rank {
    bool alive = false, up = false, met = false, stoppable = false, asked = false;
    Time comes, meets, can_stop, ends, saved;
  };

  double uniform() { return std::uniform_real_distribution<>(0, 1)(chance_); }
  bool one_in(int n) { return uniform() * n < 1; }
  Time in(double most) {
    return now_ + milliseconds(static_cast<std::int64_t>(1000 * most * uniform()));
  }
  static constexpr Time never = Time::max();

  void draw() {
    restarts_ = static_cast<int>(4 * uniform());
    for (int i = static_cast<int>(4 * uniform()); i > 0; --i)
      signals_.push_back(in(one_in(3) ? 1 : one_in(2) ? 60 : 900));
    has_hosts_ = one_in(2);
  }

  void start() {
    ++starts_;
    launcher_ = true;
    asked_to_end_ = false;
    kind_ = static_cast<Kind>(one_in(2) ? 0 : 5 * uniform());
    const bool foreign = one_in(4);
    obeys_ = !one_in(3);
    is_silent_ = one_in(2);
    is_ready_ = !one_in(20);
    ranks_.assign(1 + static_cast<std::size_t>(4 * uniform()), {});
    for (Rank& rank : ranks_) {
      rank.comes = kind_ == Kind::never_starts || one_in(12) ? never : in(one_in(8) ? 40 : 2);
      rank.meets = foreign || one_in(12) ? never : rank.comes == never ? never : in(20);
      rank.can_stop = rank.meets == never || one_in(6) ? never : in(60);
      rank.ends = one_in(20) ? never : in(one_in(3) ? 5 : 400);
    }
    launcher_ends_ = one_in(10) ? in(100) : never;
    host_lost_ = has_hosts_ && one_in(2) ? in(200) : never;
    host_back_ = in(900);
    bigger_ = has_hosts_ && one_in(2) ? in(200) : never;
    if (std::ranges::all_of(ranks_, [](auto& rank) { return rank.ends == never; }))
      signals_.push_back(in(900));  // a program without an end is ended by its user
  }

  void act() {
    std::erase_if(signals_, [&](Time when) { return when <= now_ && ++facts_.stops > 0; });
    if (!launcher_) return;
    for (Rank& rank : ranks_) {
      const bool came = rank.comes <= now_;
      if (came && !rank.up) rank.up = rank.alive = true;
      if (!rank.alive) continue;
      if (rank.asked && obeys_ && rank.saved <= now_) rank.alive = false;
      if (rank.ends <= now_) rank.alive = false;
    }
    const bool alive = std::ranges::any_of(ranks_, &Rank::alive);
    const bool all_came = std::ranges::all_of(ranks_, &Rank::up);
    const bool ended = std::ranges::any_of(ranks_, [](auto& r) { return r.up && !r.alive; });
    if (launcher_ends_ <= now_) end_launcher();
    if (kind_ == Kind::good && ((all_came && !alive) || (ended && one_in(10)))) end_launcher();
    if (kind_ != Kind::ignores_requests && kind_ != Kind::unkillable && asked_to_end_ && one_in(5))
      end_launcher();
  }

  void end_launcher() {
    launcher_ = false;
    for (Rank& rank : ranks_) rank.alive = false;
  }

  void decide_between_starts() {
    facts_.placed = facts_.unplaced = facts_.hopeless = false;
    if (machine_.state() == State::waiting) facts_.placed = host_back_ <= now_;
    if (machine_.state() != State::restarting) return;
    if (begun_ && starts_ > restarts_)
      facts_.hopeless = true;
    else if (begun_ && host_lost_ <= now_ && host_back_ > now_ && one_in(2))
      facts_.unplaced = true;
    else
      facts_.placed = is_ready_ && one_in(3);
  }

  void look() {
    const auto count = [&](auto which) { return std::ranges::count_if(ranks_, which); };
    const auto all = std::ssize(ranks_);
    const auto up = count(&Rank::up), alive = count(&Rank::alive);
    facts_.first_seen = up > 0;
    facts_.all_seen = begun_ && up == all;
    facts_.one_left = alive < up;
    facts_.all_left = begun_ && up == all && alive == 0;
    facts_.meets = count([&](auto& r) { return r.up && r.meets <= now_; }) > 0;
    facts_.met = begun_ && count([&](auto& r) { return r.up && r.meets <= now_; }) == all;
    facts_.stoppable = count([&](auto& r) { return r.alive && r.can_stop <= now_; }) > 0;
    facts_.goes_on = !obeys_ && !is_silent_ && one_in(30) && count(&Rank::asked) > 0;
    facts_.failed = facts_.one_left && one_in(10);
    facts_.launcher_gone = begun_ && !launcher_;
    facts_.unwanted = host_lost_ <= now_;
    facts_.bigger = bigger_ <= now_;
    while (true) {
      const State before = machine_.state();
      const auto deadline = machine_.deadline();
      const Rule* rule = machine_.next(facts_, now_);
      if (rule == nullptr) {
        // No state outlives its bound: a rule for the deadline has applied.
        REQUIRE((!deadline || now_ < *deadline));
        return;
      }
      REQUIRE(rule->state == before);
      used.insert(rule);
      carry_out(*rule);
    }
  }

  void carry_out(const Rule& rule) {
    if (rule.action == Action::start) {
      begun_ = true;
      const int stops = facts_.stops;
      facts_ = {};
      facts_.stops = stops;
      start();
    }
    if (rule.action == Action::ask) {
      for (Rank& rank : ranks_) rank.asked = true, rank.saved = in(20);
      if (one_in(4)) signals_.push_back(in(10));
      if (has_hosts_ && one_in(4)) host_lost_ = in(10);
    }
    if (rule.action == Action::end || rule.action == Action::kill)
      for (Rank& rank : ranks_) rank.alive = false;
    if (rule.action == Action::end || rule.action == Action::pass) asked_to_end_ = true;
    if (rule.action == Action::kill && kind_ != Kind::unkillable) end_launcher();
  }

  bool is_finished() const { return machine_.state() == State::over; }

  std::mt19937 chance_;
  Time now_{};
  JobMachine machine_;
  JobFacts facts_;
  int restarts_ = 0, starts_ = 0;
  std::vector<Time> signals_;
  bool has_hosts_ = false, begun_ = false;
  // These belong to one start.
  Kind kind_ = Kind::good;
  bool launcher_ = false, asked_to_end_ = false, obeys_ = true, is_silent_ = false;
  bool is_ready_ = true;
  std::vector<Rank> ranks_;
  Time launcher_ends_ = never, host_lost_ = never, host_back_ = never, bigger_ = never;
};

TEST_CASE("whatever happens, each state ends within its bound, and no process is left") {
  std::set<const Rule*> used;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    CAPTURE(seed);
    World world(seed);
    world.run();
    CHECK(!world.has_processes());
    CHECK(std::set{0, 17, 18, 21}.contains(world.code()));
    used.merge(world.used);
  }
  // The world has done all that the table foresees.
  for (const Rule& rule : rules()) {
    CAPTURE(name_of(rule.state));
    CAPTURE(name_of(rule.event));
    CHECK(used.contains(&rule));
  }
}

TEST_CASE("every state has a bound, or is that of a program that works, and is answered in it") {
  for (int number = 0; number < state_count; ++number) {
    const auto state = static_cast<State>(number);
    CAPTURE(name_of(state));
    const auto has = [&](Event event) {
      return std::ranges::any_of(
          rules(), [&](const Rule& rule) { return rule.state == state && rule.event == event; });
    };
    const bool works = state == State::running || state == State::training;
    CHECK(bound_of(state, limits).has_value() == (!works && state != State::over));
    if (state == State::over) continue;
    CHECK(has(Event::deadline) != works);
    CHECK((has(Event::stop) || state == State::killing));
    CHECK((has(Event::launcher_gone) || state == State::restarting || state == State::waiting));
  }
}

TEST_CASE("the table of the README is that of the program") {
  const std::string name = ZERO_SOURCE_DIR "/tools/zero/README.md";
  std::ifstream file(name);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string begin = "<!-- states -->\n", end = "<!-- end -->";
  const std::size_t from = text.find(begin) + begin.size(), to = text.find(end);
  REQUIRE(to != std::string::npos);
  if (std::getenv("ZERO_UPDATE_GENERATED") != nullptr)
    std::ofstream(name) << text.substr(0, from) + table_of_states() + text.substr(to);
  else
    CHECK(text.substr(from, to - from) == table_of_states());
}

}  // namespace
}  // namespace zero::tool
