// What Open MPI's mpirun adds to a job that fails: ten lines around the one that says why. They are
// held back while they may be of no use, and shown if the job did not say its cause itself. All
// else passes as it comes. Pure: nothing here reads, writes or waits.
#pragma once

#include <string>
#include <string_view>

namespace zero::tool {

class LauncherLines {
 public:
  // Of the job's standard error: what of it to show now.
  std::string pass(std::string_view bytes);
  // Nothing came for a moment: what was held until it is known what it is.
  std::string pause();
  bool undecided() const { return !line_.empty() || !block_.empty(); }
  // Open MPI's lines are held back, and no cause was said so far.
  bool owes() const { return !kept_.empty() && !cause_said_; }
  // The job has ended, or goes on after all: Open MPI's lines where they are all that there is.
  std::string settle();

 private:
  void take(char c, std::string& shown);
  void end_line(std::string& shown);
  void show_line(std::string& shown);
  bool may_be_ours() const;

  std::string line_;    // so far, where it may yet be held back
  bool plain_ = false;  // the rest of this line passes
  std::string start_;   // of a line that passes: the cause stands there
  std::string block_;   // from a rule on
  bool known_ = false;  // the block is Open MPI's, of a failure
  std::string kept_;
  bool cause_said_ = false;
};

}  // namespace zero::tool
