#include "zero/base/run_marks.h"

#include <atomic>
#include <chrono>
#include <cstdio>

namespace zero {
namespace {

std::atomic<std::int64_t> last_step = -1;

}  // namespace

void mark(const char* what, std::int64_t number, const std::string& text) noexcept {
  if (has_marks())
    std::fprintf(stderr, "zero: mark: %s %lld%s%s\n", what, static_cast<long long>(number),
                 text.empty() ? "" : " ", text.c_str());
}

void note_step(std::int64_t step, bool is_root) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds interval{50};
  static Clock::time_point last{};
  last_step = step;
  const auto now = Clock::now();
  if (!is_root || (last != Clock::time_point{} && now - last < interval)) return;
  last = now;
  mark("step", step);
}

void mark_failure(int failed_rank, int exit_code) noexcept {
  mark("failed", failed_rank, std::to_string(last_step));
  mark("code", exit_code);
}

}  // namespace zero
