// What ranks tell `zero run` on their standard error, beside what people read: who has come to the
// start, and the exit code of the first cause. It sets ZERO_RUN_MARKS, and shows none of it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace zero {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// "zero: mark: start 3" when a rank starts, "zero: mark: code 18" before the cause is printed: then
// others may end this process.
inline void mark(const char* what, int number) noexcept {
  if (std::getenv(run_marks_variable) != nullptr)
    std::fprintf(stderr, "zero: mark: %s %d\n", what, number);
}

}  // namespace zero
