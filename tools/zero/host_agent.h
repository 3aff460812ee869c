// The helper of `zero run --restarts` on another host, outside of the job's mpirun: it shows that
// the host answers, and ends the host's ranks when `zero run` no longer answers. Both sides send
// lines. The agent's are "ready", "beat N" with its own clock in milliseconds, before each of them
// "ranks K" with the number of ranks on the host, and "ended" when no process of the job is left.
// Those of `zero run` are "beat N", the answer, and "end": end the job's processes.
#pragma once

#include <chrono>
#include <string>

namespace zero::tool {

// From one beat to the next.
inline constexpr std::chrono::milliseconds beat_interval{500};
// An agent ends its host's ranks this long after it has sent the newest beat that was answered.
// That is over before `zero run` calls the host silent, this long after it has received the last
// beat.
inline constexpr std::chrono::milliseconds lease{2500}, silence{3500};

// Runs the agent on standard input and output until the lease is over or the input ends; then no
// process of the job is left on this host.
void run_host_agent(const std::string& job);

}  // namespace zero::tool
