// The processes of a job's ranks on this host, as reported by the ranks (zero/base/run_marks.h).
// Only these are watched and killed, never another process that has got the pid of an ended rank:
// further processes of a program, such as an upload under setsid, are left alone.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace zero::tool {

// The report of a process by name (zero/base/process_name.h).
struct ReportedProcess {
  int rank = 0;
  bool stoppable = false;  // SIGUSR2 requests a stop; otherwise: the first process of the rank
  std::string name;

  // A line of text, for agents on other hosts.
  std::string text() const;
};
ReportedProcess parse_report(const std::string& text);

class JobProcesses {
 public:
  JobProcesses() = default;
  ~JobProcesses();
  JobProcesses(const JobProcesses&) = delete;

  // Returns false, without effect, if the process runs on another host.
  bool add(const ReportedProcess& report);
  void add_sources(std::vector<pollfd>& sources) const;
  // Notes which processes have gone.
  void update();
  // The ranks whose first process was reported here, and how many have not ended.
  int ranks() const;
  int left() const;
  // Returns the pid of the rank's first process here if stopped by a signal, otherwise 0.
  pid_t stopped_process(int rank) const;
  // Asks the ranks to stop in order. Returns false if none of those here can.
  bool ask() const;
  // Kills all, and the daemons of the launcher that started them on this host.
  void kill() const;
  bool all_gone() const;
  void clear();

 private:
  struct Process {
    int rank = 0;
    bool first = false, stoppable = false;
    pid_t pid = -1;
    std::uint64_t start = 0;
    int descriptor = -1;  // a pidfd; -1: this system has none, and the start counts
    bool gone = false;
  };
  void watch(Process process);
  static bool send(const Process& process, int number);

  std::vector<Process> processes_;
};

}  // namespace zero::tool
