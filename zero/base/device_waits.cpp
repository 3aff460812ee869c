#include "zero/base/device_waits.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "zero/base/error.h"
#include "zero/base/number_text.h"

namespace zero {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

void DeviceWaits::describe(int rank, std::function<void()> check) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
  check_ = std::move(check);
}

// Called by a new engine, so that a device that was only slow is used again.
void DeviceWaits::set_limit(std::chrono::milliseconds limit) {
  limit_in_milliseconds_ = limit.count();
  stalled_ = false;
}

std::chrono::milliseconds DeviceWaits::limit() const {
  return std::chrono::milliseconds(stalled_ ? 0 : limit_in_milliseconds_.load());
}

void DeviceWaits::set_subject(const std::string& subject) {
  const std::lock_guard lock(mutex_);
  subject_ = subject;
}

// Sleeps add at most a twentieth to a wait.
void DeviceWaits::await(const std::function<bool()>& complete) {
  const Clock::time_point start = Clock::now();
  while (!complete()) {
    const auto waited = Clock::now() - start;
    if (waited > limit()) return stall();
    if (waited < 50us)
      sched_yield();
    else
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / 20, 200us));
  }
}

void DeviceWaits::stall() {
  stalled_ = true;
  std::function<void()> check;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    check = check_;
    text = "rank " + std::to_string(rank_) + ": waited " +
           shortest_text(static_cast<double>(limit_in_milliseconds_) / 1000) +
           " s for the GPU, which was last given the " +
           (subject_.empty() ? "start of the engine" : subject_);
  }
  if (check) check();
  throw StalledError(text +
                     "; look at the other ranks' last messages, or raise "
                     "zero_core.time_limit_seconds if it is only slow");
}

}  // namespace zero
