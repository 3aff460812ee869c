// Connections to the agents (host_agent.h) on the other hosts of a job that may be restarted. Keeps
// track of the hosts that answer, and tries a lost host again every few seconds. Not thread-safe:
// the owning thread must call serve() often enough, at least once per beat.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/zero/job_processes.h"

namespace zero::tool {

class HostLinks {
 public:
  // Returns the command that runs the agent on a host.
  using Reach = std::function<std::vector<std::string>(const std::string& host)>;

  // Starts an agent on each host.
  HostLinks(const std::vector<std::string>& hosts, Reach reach);
  // Ends the agents, which end the remaining processes of the job.
  ~HostLinks();
  HostLinks(const HostLinks&) = delete;

  bool empty() const { return links_.empty(); }
  void add_sources(std::vector<pollfd>& sources) const;
  // Reads and answers lines from agents, marks silent hosts as lost and retries lost hosts.
  void serve();

  // Returns true if no agent is still starting: each host answers or is lost.
  bool settled() const;
  bool answers(const std::string& host) const;
  // Returns the host's keeper as last reported by the agent (keepers.h); empty: not ready.
  std::string keeper(const std::string& host) const;
  // Sends a line to the host's agent, if answering.
  void send(const std::string& host, const std::string& line);
  // Sends the report of a rank's process to all agents; the agent on the process's host watches
  // from then on.
  void send(const ReportedProcess& report);
  // The ranks that agents watch, and how many have not ended.
  struct Watched {
    int ranks = 0, left = 0;
  };
  Watched watched() const;
  // Asks the watched ranks to stop in order. Returns false if no agent watches any.
  bool ask();
  // Sends all answering agents the order to end the job's processes, without waiting. all_ended()
  // is true once each agent has done so, or is lost and past the lease.
  void end_job();
  bool all_ended() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { starting, answering, lost };

  struct Link {
    std::string host;
    pid_t pid = -1;
    int input = -1, output = -1;  // pipes to and from the agent; -1: none
    State state = State::starting;
    bool tried = false;  // started before, so later errors are hidden
    std::string text;    // an unfinished line
    Clock::time_point since{}, last_beat{};
    bool ending = false;
    Watched watched = {};
    std::string keeper = {};
  };

  void start(Link& link);
  void lose(Link& link);
  void read_from(Link& link);
  void take_line(Link& link, const std::string& line);
  static void send(const Link& link, const std::string& line);

  const Reach reach_;
  std::vector<Link> links_;
};

}  // namespace zero::tool
