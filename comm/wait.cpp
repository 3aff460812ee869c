#include "comm/wait.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace zero::comm {

using namespace std::chrono_literals;

bool Wait::pause_long() {
  const auto now = std::chrono::steady_clock::now();
  if (start_ == std::chrono::steady_clock::time_point{}) start_ = now;
  const auto waited = now - start_;
  if (rounds_ % 16 == 0)
    plane_.check_all();
  else if (plane_.failed())
    plane_.check();
  if (waited > limit_) return false;
  if (waited < (progress_ == Progress::memory ? 1ms : 20ms)) {
    sched_yield();
  } else {
    // Sleeping adds at most a twentieth to a wait, and a waiting rank uses little of the core.
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / 20, 500us));
  }
  return true;
}

}  // namespace zero::comm
