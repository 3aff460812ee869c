// The signals of `zero run`: blocked, and read from a descriptor together with all other events.
#pragma once

#include <csignal>

namespace zero::tool {

class JobSignals {
 public:
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;

  // Readable if a signal has come.
  int descriptor() const { return descriptor_; }
  // Returns the number of the next signal; 0 if there is none. Does not wait.
  int take() const;
  // Restores the former signal mask, for the child and before this process ends.
  void restore() const;

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

// Whether the signal asks for the end of the job: the user, a scheduler or a closed terminal.
bool asks_for_end(int number);

// Ends this process by this signal, without a core dump of its own.
[[noreturn]] void end_by_signal(int number, const JobSignals& signals);

}  // namespace zero::tool
