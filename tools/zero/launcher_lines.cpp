#include "tools/zero/launcher_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

// Open MPI's messages are enclosed by two such lines.
constexpr std::size_t rule_length = 74;

// First lines of messages that only report that a rank has failed. mpirun calls itself prterun from
// version 5 on.
constexpr std::array<std::string_view, 9> of_failures = {
    "An MPI communication peer process has unexpectedly disconnected.",
    "ORTE has lost communication with a remote daemon.",
    "MPI_ABORT was invoked on rank ",
    "Primary job  terminated normally, but ",
    "mpirun detected that one or more processes exited with non-zero status",
    "mpirun has exited due to process rank ",
    "mpirun noticed that process rank ",
    "prterun detected that one or more processes exited with non-zero status",
    "prterun has exited due to process rank "};

constexpr std::string_view of_rank = "zero: rank ", mark = "zero: mark: ";

// mpirun may tag lines: "[1,3]<stderr>:zero: rank 3: ...".
std::string_view without_tag(std::string_view line) {
  constexpr std::string_view tag = "<stderr>:";
  if (const auto at = line.find(tag); at != std::string_view::npos && line.front() != 'z')
    line.remove_prefix(at + tag.size());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  return line;
}

// Returns true for "zero: rank 3: ...", the form in which zero::run() reports the first cause.
bool says_cause(std::string_view line) {
  line = without_tag(line);
  if (!line.starts_with(of_rank)) return false;
  line.remove_prefix(of_rank.size());
  const std::size_t digits = line.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && line[digits] == ':';
}

bool is_word_of_ranks(std::string_view line) {
  return says_cause(line) || without_tag(line).starts_with(mark);
}

// Returns true if the line begins with such a message, or is still too short to tell.
bool may_be_word_of_ranks(std::string_view line) {
  return std::ranges::any_of(std::array{of_rank, mark}, [&](std::string_view start) {
    return line.starts_with(start) || start.starts_with(line);
  });
}

bool is_rule(std::string_view line) {
  return line.size() == rule_length + 1 && line.find_first_not_of('-') == rule_length;
}

// Returns true for Open MPI's lines about messages: "[host:123] 1 more process has sent help
// message ...", how to see all, and that a message was truncated at the end of the job.
bool is_on_messages(std::string_view line) {
  const auto has = [&](std::string_view part) { return line.find(part) != std::string_view::npos; };
  return line.front() == '[' &&
         (has(" sent help message help-") || has("\"orte_base_help_aggregate\"") ||
          has("\"prte_base_help_aggregate\"") ||
          (has("_ERROR_LOG: ") && has("show_help.c at line ")));
}

}  // namespace

// A cause of several lines indents the further lines, or has one line for each rank.
bool LauncherLines::may_continue_dropped() const {
  constexpr std::string_view rank = "rank ";
  return dropping_ && (line_.front() == ' ' || line_.starts_with(rank) || rank.starts_with(line_));
}

bool LauncherLines::may_be_ours() const {
  if (!block_.empty()) return true;
  if (may_continue_dropped()) return true;
  if (line_.front() == '[' || may_be_word_of_ranks(line_)) return true;
  return line_.size() <= rule_length && line_.find_first_not_of('-') == std::string::npos;
}

std::string LauncherLines::pass(std::string_view bytes) {
  std::string shown;
  for (const char c : bytes) take(c, shown);
  return shown;
}

void LauncherLines::take(char c, std::string& shown) {
  constexpr std::size_t longest_start = 120;
  if (plain_) {
    shown += c;
    if (start_.size() < longest_start) start_ += c;
  } else {
    line_ += c;
    if (c != '\n' && !may_be_ours()) show_line(shown);
  }
  if (c == '\n') end_line(shown);
}

// Shows the held start of the line, because it is not Open MPI's.
void LauncherLines::show_line(std::string& shown) {
  shown += line_;
  start_ += std::exchange(line_, "");
  plain_ = true;
}

void LauncherLines::end_line(std::string& shown) {
  const bool first_of_block = !plain_ && !block_.empty() && is_rule(block_);
  if (plain_) {
    cause_said_ = cause_said_ || says_cause(start_);
  } else if (is_word_of_ranks(line_)) {
    take_word_of_ranks(without_tag(line_), shown);
  } else if (known_) {
    block_ += line_;
    if (is_rule(line_)) {
      kept_ += std::exchange(block_, "");
      known_ = false;
    }
  } else if (first_of_block && !is_rule(line_)) {
    const bool of_failure = std::ranges::any_of(
        of_failures, [&](std::string_view text) { return line_.starts_with(text); });
    failing_ = failing_ || of_failure;
    known_ = !all_ && of_failure;
    block_ += line_;
    if (!known_) shown += std::exchange(block_, "");
  } else if (is_rule(line_)) {
    shown += std::exchange(block_, line_);
  } else if (!all_ && is_on_messages(line_)) {
    kept_ += line_;
  } else if (!may_continue_dropped()) {
    shown += line_;
    dropping_ = false;
  }
  if (failing_) take_failure(plain_ ? start_ : line_);
  line_.clear();
  start_.clear();
  plain_ = false;
}

// "WHAT NUMBER REST" (zero/base/run_marks.h).
void LauncherLines::take_mark(const std::string& text) {
  std::istringstream words(text);
  std::string what, rest;
  std::int64_t number = 0;
  if (!(words >> what >> number)) return;
  std::getline(words >> std::ws, rest);
  const int rank = static_cast<int>(number);
  if (what == "up" || what == "stoppable") {
    (what == "up" ? up_ : stoppable_).insert(rank);
    processes_.push_back({rank, what == "stoppable", rest});
  }
  if (what == "start") {
    started_.insert(rank);
    start_limit_ = std::max<std::int64_t>(start_limit_, std::atoll(rest.c_str()));
  }
  if (what == "met") met_ = true;
  if (what == "goes-on") stop_ignored_ = true;
  // Ranks report a failure in any order, and a peer of the failed rank may be a step behind.
  const auto reach = [this](std::int64_t made) {
    if (made >= 0) step_ = std::max(made, step_.value_or(made));
  };
  if (what == "failed") {
    if (!failed_) failed_ = rank;
    if (rank == failed_ && !rest.empty()) reach(std::atoll(rest.c_str()));
  }
  if (what == "suspect" && !suspect_) suspect_ = rank;
  if (what == "late" && !late_) late_ = rank;
  if (what == "code" && !exit_code_) exit_code_ = rank;
  if (what == "step" && failed_) reach(number);
  if (what == "step" && !failed_) step_ = number;
  if (what == "resumed") resumed_ = number;
  if (what == "saved") saved_ = number, saved_in_ = rest;
  if ((what == "resumed" || what == "saved") && !rest.empty()) kept_steps_[rest] = number;
  if (what == "copied") copied_ = number;
}

std::optional<int> LauncherLines::failed_rank() const {
  if (suspect_) return suspect_;  // peers may end first
  if (exit_code_ == StalledError::code && late_) return late_;
  // A rank may have seen the end of another rank, ended by Open MPI after the first.
  if (exit_code_ == PeerFailed::code && ended_) return ended_;
  return failed_ ? failed_ : ended_;
}

// "mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed)." and, of an
// exit code, "  Process name: [[4711,1],2]".
void LauncherLines::take_failure(std::string_view line) {
  const auto number_after = [&](std::string_view words) -> std::optional<int> {
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) return std::nullopt;
    return std::atoi(line.data() + at + words.size());
  };
  if (!ended_ && line.starts_with("mpirun noticed")) ended_ = number_after("process rank ");
  if (!ended_ && line.find("Process name: [[") != std::string_view::npos)
    ended_ = std::atoi(line.data() + line.rfind(',', line.rfind(']')) + 1);
  if (!signal_ && line.starts_with("mpirun noticed")) signal_ = number_after("exited on signal ");
}

void LauncherLines::take_word_of_ranks(std::string_view text, std::string& shown) {
  if (text.starts_with(mark))
    return take_mark(std::string(trimmed(text.substr(mark.size()), "\n")));
  const bool follows = text.find(": stopped because rank ") != std::string_view::npos;
  start_failed_ = start_failed_ || text.find(": MPI did not come up") != std::string_view::npos;
  dropping_ = !all_ && (cause_said_ || follows);
  if (dropping_ && follows && follower_.empty()) follower_ = line_;
  if (dropping_) return;
  cause_said_ = true;
  shown += line_;
}

std::string LauncherLines::pause() {
  std::string shown = std::exchange(block_, "");
  known_ = false;
  if (!line_.empty()) show_line(shown);
  return shown;
}

std::string LauncherLines::take_held() {
  std::string shown;
  if (!cause_said_) shown = !follower_.empty() ? follower_ : cause_follows_ ? "" : kept_;
  cause_said_ = cause_said_ || !follower_.empty();
  kept_.clear();
  follower_.clear();
  return shown + pause();
}

}  // namespace zero::tool
