// Runs a command as if this process had been replaced by it: the command has its standard input and
// output, its terminal with job control, and its signals, and determines its exit code. Only
// standard error passes through a filter.
#pragma once

#include <poll.h>

#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/zero/launcher_lines.h"

namespace zero::tool {

// Exit codes of train_gpt after a signal: whether a checkpoint has the last step
// (docs/exit-codes.md).
inline constexpr int stopped_saved = 20, stopped_unsaved = 21;

// Blocks the signals of this process and reports them through a descriptor to poll.
class JobSignals {
 public:
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;

  int descriptor() const { return descriptor_; }
  // Restores the former signal mask, for the child and before this process ends.
  void restore() const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

// The end of a command: its exit code, or the signal that ended it.
struct JobEnd {
  int code = 0, signal = 0;
  bool stop_requested = false;  // by SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGUSR2
};

// Writes to standard error; waits if that is a full pipe.
void write_text(std::string_view text);
void write_line(const std::string& text);  // the text and a line break

// Work that supervise() does while a job runs.
class JobCompanion {
 public:
  virtual ~JobCompanion() = default;
  virtual void add_sources(std::vector<pollfd>& sources) const = 0;
  // Called at least every tick_ms.
  virtual void serve() = 0;
  static constexpr int tick_ms = 100;
  // Returns why the job must end now; "" if it continues.
  virtual std::string reason_to_end() const = 0;
  // Takes text of the job's standard error, and messages about the job.
  virtual void show(std::string_view text) { write_text(text); }
};

// If a rank has reported why the job ends and all ranks on this machine have ended, but the
// launcher has not, the launcher is terminated, and the exit code is that of the reported cause. If
// fewer than `ranks` ranks start, prints the missing ones. Returns nothing, with errno set, if the
// command cannot be started.
std::optional<JobEnd> supervise(const std::vector<std::string>& command, int ranks,
                                LauncherLines& lines, const JobSignals& signals,
                                JobCompanion* companion = nullptr);

// Ends this process with the job's exit code or signal.
[[noreturn]] void end_like(const JobEnd& job, const JobSignals& signals);

}  // namespace zero::tool
