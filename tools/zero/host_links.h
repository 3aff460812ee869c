// The other hosts of a job that may be started again, each with an agent (host_agent.h): which of
// them answer, and since when one does not. A host that is lost is tried again every few seconds.
// For one thread, which serves it between its own work.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace zero::tool {

class HostLinks {
 public:
  // Returns the command that runs the agent on a host.
  using Reach = std::function<std::vector<std::string>(const std::string& host)>;

  // Starts an agent on each host.
  HostLinks(const std::vector<std::string>& hosts, Reach reach);
  // Ends the agents, which end what is left of the job.
  ~HostLinks();
  HostLinks(const HostLinks&) = delete;

  bool empty() const { return links_.empty(); }
  void add_sources(std::vector<pollfd>& sources) const;
  // Reads what agents have sent, answers, and notes hosts that are silent.
  void serve();
  // Serves for this long, or until done() is true.
  void serve_until(std::chrono::steady_clock::time_point end, const std::function<bool()>& done);

  // Returns true if every host answers, or has not done so for its time to start.
  bool settled() const;
  bool answers(const std::string& host) const;
  // Counts the ranks on hosts that answer.
  int ranks() const;
  // Asks all agents that answer to end the job's processes; all_ended() is true when they have, or
  // their hosts are lost and their leases are over.
  void end_job();
  bool all_ended() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { starting, answering, lost };

  struct Link {
    std::string host;
    pid_t pid = -1;
    int input = -1, output = -1;  // of the agent; -1: none
    State state = State::starting;
    bool tried = false;  // more than once
    std::string text;    // of an unfinished line
    Clock::time_point since{}, last_beat{};
    bool ending = false;
    int ranks = 0;
  };

  void start(Link& link);
  void lose(Link& link);
  void read_from(Link& link);
  void take_line(Link& link, const std::string& line);

  const Reach reach_;
  std::vector<Link> links_;
};

}  // namespace zero::tool
