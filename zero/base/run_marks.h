// Status lines that `zero run` reads from the ranks' standard error, mixed with normal output: a
// rank has started, how far the training has come, and why the job ends. `zero run` sets
// ZERO_RUN_MARKS, and hides these lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace zero {

inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// Open MPI drops unread output of a rank if that rank's exit ends the job: the time to wait for.
inline constexpr std::chrono::milliseconds unread_output{100};

// Lines "zero: mark: WHAT NUMBER TEXT". A PROCESS is the text of process_name()
// (zero/base/process_name.h).
//   up RANK PROCESS         the shell that becomes the rank's program, before that
//   start RANK SECONDS      a rank has reached the start, which has this limit
//   met RANK                all ranks have met
//   stoppable RANK PROCESS  SIGUSR2 requests a stop at the rank's next step
//   goes-on RANK            another step begins after that
//   step STEP               after that step, from rank 0
//   resumed STEP DIRECTORY  from rank 0, after a load; without a directory from a copy in memory
//   saved STEP DIRECTORY    from rank 0, after the commit of a checkpoint
//   copied STEP             from rank 0, after that of a copy in memory
// Before the cause of an end is printed, because this process may be ended from then on:
//   suspect RANK            its results differ from the peers': its hardware may be the cause
//   late RANK               the cause is a wait for this rank
//   failed RANK STEP        the rank that failed; the last step that the writing rank has made, or
//   -1 code CODE               the job's exit code
void mark(const char* what, std::int64_t number, const std::string& text = "") noexcept;

// Whether there is a `zero run` that reads the lines.
inline bool has_marks() noexcept {
  return std::getenv(run_marks_variable) != nullptr;
}

// Notes a step of this process. Rank 0 marks the step, but at most 20 steps in a second, because
// each mark is a message to another process. For the program's thread.
void note_step(std::int64_t step, bool is_root) noexcept;

// Marks the rank that failed, with the step that note_step() noted last, and the code.
void mark_failure(int failed_rank, int exit_code) noexcept;

}  // namespace zero
