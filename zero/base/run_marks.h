// Status lines that `zero run` reads from the ranks' standard error, mixed with normal output: a
// rank has started, will stop in order after a signal, and the exit code of the first cause. `zero
// run` sets ZERO_RUN_MARKS, and hides these lines.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace zero {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// Lines: "zero: mark: start 3" when a rank starts, "zero: mark: stoppable 3" when SIGUSR2 requests
// a stop at its next step, "zero: mark: goes-on 3" when it begins another step after that, "zero:
// mark: code 18" before the cause is printed, because others may end this process from then on.
inline void mark(const char* what, int number) noexcept {
  if (std::getenv(run_marks_variable) != nullptr)
    std::fprintf(stderr, "zero: mark: %s %d\n", what, number);
}

}  // namespace zero
