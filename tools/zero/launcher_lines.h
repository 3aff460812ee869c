// What a job that fails writes to standard error. Open MPI's mpirun adds ten lines around the one
// that says why: they are held back while they may be of no use, and shown if the job did not say
// its cause itself. Where several hosts each name a cause, the first one is shown, and of those
// that only speak of another rank's failure none, if there is a better one. What the ranks tell
// `zero run` itself (zero/base/run_marks.h) is kept here. All else passes as it comes. Pure:
// nothing here reads, writes or waits.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace zero::tool {

class LauncherLines {
 public:
  // `all`: nothing is left out but what ranks tell `zero run` itself.
  explicit LauncherLines(bool all = false) : all_(all) {}
  // Of the job's standard error: what of it to show now.
  std::string pass(std::string_view bytes);
  // Nothing came for a moment: what was held until it is known what it is.
  std::string pause();
  bool undecided() const { return !line_.empty() || !block_.empty(); }
  // Lines on a failure are held back, and no cause was said so far.
  bool owes() const { return !cause_said_ && !(kept_.empty() && follower_.empty()); }
  // A rank has said why the job ends.
  bool cause_said() const { return cause_said_; }
  // The exit code of that cause.
  std::optional<int> exit_code() const { return exit_code_; }
  // Ranks have waited in vain for all to come up.
  bool start_failed() const { return start_failed_; }
  // Those that have come to the start.
  const std::set<int>& started() const { return started_; }
  // Those that a signal asks to stop at their next step.
  const std::set<int>& stoppable() const { return stoppable_; }
  // A rank goes on with its steps after it was told to stop.
  bool stop_ignored() const { return stop_ignored_; }
  // The job has ended, or goes on after all: Open MPI's lines where they are all that there is.
  std::string settle();

 private:
  void take(char c, std::string& shown);
  void end_line(std::string& shown);
  void show_line(std::string& shown);
  bool may_be_ours() const;
  bool may_continue_dropped() const;
  void take_word_of_ranks(std::string_view text, std::string& shown);

  std::string line_;    // so far, where it may yet be held back
  bool plain_ = false;  // the rest of this line passes
  std::string start_;   // of a line that passes: the cause stands there
  std::string block_;   // from a rule on
  bool known_ = false;  // the block is Open MPI's, of a failure
  std::string kept_;
  std::string follower_;   // the first line that only speaks of another rank's failure
  bool dropping_ = false;  // of a cause that is not shown: its other lines are not either
  const bool all_;
  bool cause_said_ = false, start_failed_ = false, stop_ignored_ = false;
  std::set<int> started_, stoppable_;
  std::optional<int> exit_code_;
};

}  // namespace zero::tool
