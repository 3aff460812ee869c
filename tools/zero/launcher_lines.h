// Filter of a failing job's standard error. Open MPI's mpirun prints ten lines around the cause.
// These are held back while possibly useless, and shown if the job did not report a cause itself.
// If several hosts report a cause, the first is shown, and messages that only report another rank's
// failure are hidden if the cause itself was reported. Marks from ranks to `zero run`
// (zero/base/run_marks.h) are not shown. All other text passes unchanged. `mpirun --quiet` would
// print none of the ten lines, but would also hide errors that nobody else reports: a program or a
// host that is not found, too few slots, a transport that MPI_Init cannot open; and
// orte_base_help_aggregate changes only how often a line comes. Pure: nothing here reads, writes or
// waits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/zero/job_processes.h"

namespace zero::tool {

class LauncherLines {
 public:
  // `all`: hides nothing except the marks from ranks to `zero run`. `cause_follows`: the caller
  // reports the cause, so Open MPI's lines are never needed.
  explicit LauncherLines(bool all = false, bool cause_follows = false)
      : all_(all), cause_follows_(cause_follows) {}
  // Takes bytes of the job's standard error; returns the text to show now.
  std::string pass(std::string_view bytes);
  // Sets `cause_follows` from now on.
  void expect_end() { cause_follows_ = true; }
  // Called after a moment of silence; returns the undecided text that was held.
  std::string pause();
  bool undecided() const { return !line_.empty() || !block_.empty(); }
  // Returns true if lines about a failure are held back, and no cause was reported yet.
  bool owes() const {
    return !cause_said_ && !cause_follows_ && !(kept_.empty() && follower_.empty());
  }
  // Returns true if a rank has reported why the job ends.
  bool cause_said() const { return cause_said_; }
  // The exit code of that cause.
  std::optional<int> exit_code() const { return exit_code_; }
  // Returns true if ranks timed out waiting for all ranks to start.
  bool start_failed() const { return start_failed_; }
  // Ranks that have reached the start.
  const std::set<int>& started() const { return started_; }
  // Whether all ranks have met.
  bool met() const { return met_; }
  // The limit of the start, in seconds, that a rank has reported; 0: none has.
  std::int64_t start_limit() const { return start_limit_; }
  // Ranks whose process is up, and ranks that stop at the next step if a signal requests a stop.
  const std::set<int>& up() const { return up_; }
  const std::set<int>& stoppable() const { return stoppable_; }
  // Returns the processes that were reported since the last call.
  std::vector<ReportedProcess> take_processes() { return std::exchange(processes_, {}); }
  // Returns true if a rank continues with steps after a stop was requested.
  bool stop_ignored() const { return stop_ignored_; }
  // Returns true if the job must end soon: a rank has reported its code, or Open MPI a failure.
  bool ending() const { return failing_ || exit_code_.has_value(); }
  // The same, or a rank has reported the cause.
  bool failing() const { return failing_ || cause_said_; }
  // The rank that has failed or is waited for, and the signal that ended this rank, as far as
  // reported by a rank or Open MPI.
  std::optional<int> failed_rank() const;
  std::optional<int> signal() const { return signal_; }
  // The rank whose values differ from its peers' (zero_core.recompute_every).
  std::optional<int> suspect() const { return suspect_; }
  // The last steps that were reported: made, resumed from, and saved.
  std::optional<std::int64_t> step() const { return step_; }
  std::optional<std::int64_t> resumed() const { return resumed_; }
  std::optional<std::int64_t> saved() const { return saved_; }
  // The step of the last copy in memory (zero_core.peer_copies).
  std::optional<std::int64_t> copied() const { return copied_; }
  // The step of the newest checkpoint on disk that was saved or loaded, by directory, a text as in
  // zero/checkpoint/generation.h.
  const std::map<std::string, std::int64_t>& kept() const { return kept_steps_; }
  // The directory of the last save; "" if there was none.
  const std::string& saved_in() const { return saved_in_; }
  // Called when the job has ended, or continues after all. If no cause was reported, returns the
  // held message about another rank's failure, or otherwise Open MPI's lines.
  std::string take_held();

 private:
  void take(char c, std::string& shown);
  void end_line(std::string& shown);
  void show_line(std::string& shown);
  bool may_be_ours() const;
  bool may_continue_dropped() const;
  void take_mark(const std::string& text);
  void take_failure(std::string_view line);
  void take_word_of_ranks(std::string_view text, std::string& shown);

  std::string line_;    // so far, if it may still be held back
  bool plain_ = false;  // the remainder of this line passes
  std::string start_;   // of a line that passes: a cause would be there
  std::string block_;   // from a rule on
  bool known_ = false;  // the block is Open MPI's, of a failure
  std::string kept_;
  std::string follower_;   // the first line that only reports another rank's failure
  bool dropping_ = false;  // in a hidden cause, so further lines are hidden too
  const bool all_;
  bool cause_follows_, met_ = false;
  bool failing_ = false, cause_said_ = false, start_failed_ = false, stop_ignored_ = false;
  std::set<int> up_, started_, stoppable_;
  std::vector<ReportedProcess> processes_;
  std::int64_t start_limit_ = 0;
  std::optional<int> exit_code_, signal_;
  // Reported by a rank, by ranks that wait, by Open MPI.
  std::optional<int> failed_, late_, ended_;
  std::optional<int> suspect_;
  std::optional<std::int64_t> step_, resumed_, saved_, copied_;
  std::map<std::string, std::int64_t> kept_steps_;
  std::string saved_in_;
};

}  // namespace zero::tool
