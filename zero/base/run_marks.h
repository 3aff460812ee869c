// Status lines that `zero run` reads from the ranks' standard error, mixed with normal output: a
// rank has started, how far the training has come, and why it ends. `zero run` sets ZERO_RUN_MARKS,
// and hides these lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace zero {

// "1", or "steps" to have the steps too.
inline constexpr const char* run_marks_variable = "ZERO_RUN_MARKS";

// Lines: "zero: mark: start 3" when a rank starts, "zero: mark: stoppable 3" when SIGUSR2 requests
// a stop at its next step, "zero: mark: goes-on 3" when it begins another step after that, "zero:
// mark: saved 500", "zero: mark: resumed 500" and "zero: mark: copied 500" from rank 0 with the
// step of a checkpoint or copy. Before the cause of an end is printed, because others may end this
// process from then on: "zero: mark: late 2" if it is a wait for rank 2, "zero: mark: failed 2"
// with the rank that failed, and "zero: mark: code 18". Before that, "zero: mark: suspect 2" from a
// rank whose results differ from those of others, so that its hardware may be the cause.
inline void mark(const char* what, std::int64_t number) noexcept {
  if (std::getenv(run_marks_variable) != nullptr)
    std::fprintf(stderr, "zero: mark: %s %lld\n", what, static_cast<long long>(number));
}

// "zero: mark: step 412" after that step, from rank 0; at most 20 of them in a second, because each
// is a message to another process. For the program's thread.
inline void mark_step(std::int64_t step) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds interval{50};
  static const char* const wanted = std::getenv(run_marks_variable);
  static Clock::time_point last{};
  if (wanted == nullptr || std::string_view(wanted) != "steps") return;
  const auto now = Clock::now();
  if (last != Clock::time_point{} && now - last < interval) return;
  last = now;
  mark("step", step);
}

}  // namespace zero
