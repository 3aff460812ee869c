// What ranks tell `zero run` on their standard error, beside what people read: who has come to the
// start, and the exit code of the first cause. It sets ZERO_RUN_MARKS, and shows none of it.
#pragma once

#include <string>

namespace zero::comm {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// "zero: mark: start 3". Of a rank that a launcher has started.
void mark_start();
// "zero: rank 3: REASON" and its code.
void print_cause(int rank, const std::string& reason, int exit_code);
// "zero: mark: code 18", where the cause has been printed otherwise.
void mark_code(int exit_code);

}  // namespace zero::comm
