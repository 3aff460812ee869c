// Runs a command as if this process had become it, except that its standard error passes through a
// filter: standard input and output, the terminal and its job control, signals and the exit code
// are the command's.
#pragma once

#include <poll.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "tools/zero/launcher_lines.h"

namespace zero::tool {

// The signals of this process, as a descriptor to poll, while it lives.
class JobSignals {
 public:
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;

  int descriptor() const { return descriptor_; }
  // As it was before: for the child, and for the end of this process.
  void restore() const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

// The end of a command: its exit code, or the signal that ended it.
struct JobEnd {
  int code = 0, signal = 0;
  bool stop_requested = false;  // by SIGTERM, SIGINT or SIGUSR2 to this process
};

// Work next to a running job.
class JobCompanion {
 public:
  virtual ~JobCompanion() = default;
  virtual void add_sources(std::vector<pollfd>& sources) const = 0;
  // Called after each wait, which takes at most tick_ms.
  virtual void serve() = 0;
  static constexpr int tick_ms = 100;
  // Returns why the job must end now; "" if it continues.
  virtual std::string reason_to_end() const = 0;
};

// If a launcher does not end after a rank has reported why the job ends and all ranks of this
// machine have left, it is terminated, and the exit code is the cause's. If fewer than `ranks`
// ranks start, the missing ones are named. Returns nothing if the command cannot be started, with
// errno set.
std::optional<JobEnd> supervise(const std::vector<std::string>& command, int ranks,
                                LauncherLines& lines, const JobSignals& signals,
                                JobCompanion* companion = nullptr);

// Writes a line to standard error, also if that is a full pipe.
void write_line(const std::string& text);

// Ends this process in the same way.
[[noreturn]] void end_like(const JobEnd& job, const JobSignals& signals);

}  // namespace zero::tool
