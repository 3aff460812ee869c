// The agent of `zero run --restarts` on another host, outside of the job's mpirun. Its heartbeats
// show that the host is reachable, and the agent ends the host's ranks when `zero run` no longer
// answers, so that none can write a checkpoint next to a newer start. Both sides send lines.
// Agent: "ready" at the start; every beat_interval, and at a change, "ranks K L" (watched ranks on
// this host, and how many have not ended), and "beat N" (the agent's clock in milliseconds);
// "ended" when no watched process is left after "end". `zero run`: "beat N" in answer to a beat;
// "process REPORT" (job_processes.h), which the agent watches if on this host; "ask" to ask the
// ranks to stop in order; "end" to kill the ranks. Lines after "keeper " are from or for the host's
// keeper (keeper.h), a child of the agent.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace zero::tool {

// The time between two beats.
inline constexpr std::chrono::milliseconds beat_interval{500};
// lease: an agent ends the host's ranks this long after sending the newest answered beat.
// silence: `zero run` considers a host lost this long after the last beat. The silence is longer
// than the lease, so the ranks of a lost host have ended before the job is restarted.
inline constexpr std::chrono::milliseconds lease{2500}, silence{3500};

// Calls take(line) for each whole line of the text, and leaves an unfinished line there.
template <class Take>
void take_lines(std::string& text, const Take& take) {
  for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos;) {
    take(text.substr(0, end));
    text.erase(0, end + 1);
  }
}

// Runs the agent on standard input and output until the lease is over or the input ends, then ends
// the job's processes on this host, and the keeper, if any.
void run_host_agent(const std::string& job, bool has_keeper);

}  // namespace zero::tool
