// What ranks tell `zero run` on their standard error, beside what people read: who has come to the
// start, and the exit code of the first cause. It sets ZERO_RUN_MARKS, and shows none of it.
#pragma once

namespace zero {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// "zero: mark: start 3".
void mark_start(int rank);
// "zero: mark: code 18". Before the cause is printed: then others may end this process.
void mark_code(int exit_code) noexcept;

}  // namespace zero
