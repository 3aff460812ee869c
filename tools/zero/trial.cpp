#include "tools/zero/trial.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "tools/zero/job_command.h"
#include "tools/zero/launcher_lines.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks report at most 20 steps a second, so shorter times would be inexact.
constexpr std::chrono::seconds shortest{1};
constexpr std::size_t most_text = 1 << 16;

constexpr int usage_code = 2;  // of programs with a wrong command line, such as argparse's

// Returns the last line that the launcher did not write: the launcher frames its own by lines of
// dashes.
std::string last_line(const std::string& text) {
  std::string found;
  bool framed = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool rule = line.size() > 20 && line.find_first_not_of('-') == std::string::npos;
    if (rule)
      framed = !framed;
    else if (!framed && line.find_first_not_of(" \t\r") != std::string::npos)
      found = line;
  }
  return found;
}

class Trial final : public JobCompanion {
 public:
  explicit Trial(const TrialRequest& request)
      : request_(request), deadline_(Clock::now() + request.limit) {}

  TrialResult run(const JobSignals& signals);

  void serve() override;
  void add_facts(JobFacts& facts) const override { facts.unwanted = is_over(); }
  void show(std::string_view text) override;

 private:
  struct Seen {
    std::int64_t step;
    Clock::time_point time;
  };
  bool is_enough() const;
  bool is_over() const { return is_enough() || Clock::now() >= deadline_; }
  std::string problem_of(const JobEnd& end) const;
  bool is_by_plan(const JobEnd& end) const;

  const TrialRequest& request_;
  const Clock::time_point deadline_;
  LauncherLines lines_{false, true};   // the launcher's own lines are no reason
  std::optional<std::int64_t> first_;  // the first step that was reported
  std::optional<Seen> begin_, last_;   // of the timed steps
  std::string text_;                   // the end of the program's messages
};

void Trial::serve() {
  const auto step = lines_.step();
  if (!step) return;
  if (!first_) first_ = step;
  if (*step < *first_ + request_.warm_up || (last_ && last_->step == *step) || is_enough()) return;
  last_ = Seen{*step, Clock::now()};
  if (!begin_) begin_ = last_;
}

bool Trial::is_enough() const {
  return begin_ && last_->step - begin_->step >= request_.steps &&
         last_->time - begin_->time >= shortest;
}

void Trial::show(std::string_view text) {
  text_ += text;
  if (text_.size() > most_text) text_.erase(0, text_.size() - most_text);
}

// Memory may suffice for another plan, and another may be quicker.
bool Trial::is_by_plan(const JobEnd& end) const {
  return Clock::now() >= deadline_ || end.signal == SIGKILL || end.code == MemoryError::code ||
         end.code == 128 + SIGKILL || text_.find("emory") != std::string::npos;
}

// Returns the program's last message, otherwise its exit code or signal.
std::string Trial::problem_of(const JobEnd& end) const {
  if (Clock::now() >= deadline_)
    return "fewer than " + count_of(request_.warm_up + request_.steps, "step") + " within " +
           std::to_string(std::chrono::ceil<std::chrono::seconds>(request_.limit).count()) + " s";
  if (end.code == 0 && end.signal == 0)
    return "the program ended after fewer than " + count_of(request_.warm_up + 2, "step");
  if (const std::string line = last_line(text_); !line.empty()) return line;
  return end.signal != 0 ? "ended by signal " + std::to_string(end.signal)
                         : "ended with code " + std::to_string(end.code);
}

TrialResult Trial::run(const JobSignals& signals) {
  JobCommand command(request_.launch, request_.machine, request_.launcher, {});
  std::vector<std::string> words = {"/bin/sh", "-c", "exec \"$@\" >/dev/null", "sh"};
  for (const std::string& word : command.words()) words.push_back(word);
  Job job(signals, {}, *this);
  const auto end = job.run({words, request_.launch.ranks, lines_});
  if (!end)
    throw TopologyError("cannot start " + request_.launcher.path + ": " + std::strerror(errno));
  if (end->stop_requested) return {.stopped = true};
  if (begin_ && last_->step > begin_->step)
    return {.step_seconds = std::chrono::duration<double>(last_->time - begin_->time).count() /
                            static_cast<double>(last_->step - begin_->step)};
  return {.problem = problem_of(*end),
          .by_plan = is_by_plan(*end),
          .wrong_options = end->code == ConfigError::code || end->code == usage_code};
}

}  // namespace

TrialResult run_trial(const TrialRequest& request, const JobSignals& signals) {
  return Trial(request).run(signals);
}

}  // namespace zero::tool
