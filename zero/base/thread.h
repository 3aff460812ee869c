// Starts a thread; the error of a failed start names the purpose and the remedy.
#pragma once

#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "zero/base/error.h"

namespace zero {

// Throws TopologyError if the system allows this process no more threads.
template <class Work>
std::thread start_thread(const std::string& purpose, Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw TopologyError("no thread can be started for " + purpose + " (" + error.what() +
                        "): raise the limit of processes (ulimit -u, or pids.max of the job's "
                        "cgroup) or of address space (ulimit -v), or take fewer threads per rank "
                        "(RuntimeOptions::threads, train_gpt --threads)");
  }
}

// Does the same for a thread that gets no signals, because the program's own threads handle them.
template <class Work>
std::thread start_thread_without_signals(const std::string& purpose, Work&& work) {
  struct Blocked {
    sigset_t before;
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } blocked;
  return start_thread(purpose, std::forward<Work>(work));
}

}  // namespace zero
