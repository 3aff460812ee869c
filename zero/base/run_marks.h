// What ranks tell `zero run` on their standard error, next to what people read: who has come to the
// start, who stops in order when a signal comes, and the exit code of the first cause. It sets
// ZERO_RUN_MARKS, and shows none of it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace zero {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// "zero: mark: start 3" when a rank starts, "zero: mark: stoppable 3" when SIGUSR2 asks it to stop
// at its next step, "zero: mark: goes-on 3" when it begins another step after that, "zero: mark:
// code 18" before the cause is printed: then others may end this process.
inline void mark(const char* what, int number) noexcept {
  if (std::getenv(run_marks_variable) != nullptr)
    std::fprintf(stderr, "zero: mark: %s %d\n", what, number);
}

}  // namespace zero
