// Names of processes that stay unique, unlike pids, for messages from a rank to `zero run` and to
// agents on other hosts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace zero {

// "PID TICKS HOME" of this process: the pid, the start in ticks since the boot, and the home.
std::string process_name();

// Equal in processes that see each other under the same pids and share a network: the ids of the
// kernel's boot and of two namespaces. Test hosts that share a kernel differ in the last.
std::string process_home();

// Returns the second part of a process's name; 0 if there is no such process, or no longer.
std::uint64_t start_of_process(pid_t pid);

}  // namespace zero
