// Time of the program's thread in the steps: a stopwatch that always runs for one activity. While
// stopped (between steps, in evaluations) it keeps track of the activity and charges nothing. One
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "zero/base/enum_array.h"

namespace zero::detail {

class StepClock {
 public:
  enum class Activity : std::uint8_t { other, kernels, waiting, optimizer };
  static constexpr int activity_count = 4;

  void start() {
    last_ = Clock::now();
    running_ = true;
  }
  void stop() {
    turn_to(Activity::other);
    running_ = false;
  }
  // Returns the previous activity.
  Activity turn_to(Activity next) {
    const Activity ended = activity_;
    activity_ = next;
    if (!running_) return ended;
    const Clock::time_point now = Clock::now();
    spent_[ended] += now - last_;
    last_ = now;
    return ended;
  }
  std::int64_t nanoseconds(Activity activity) const {
    return std::chrono::nanoseconds(spent_[activity]).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  EnumArray<Activity, Clock::duration, activity_count> spent_{};
  Clock::time_point last_;
  Activity activity_ = Activity::other;
  bool running_ = false;
};

// Sets an activity until the end of the block, then restores the previous one.
class [[nodiscard]] During {
 public:
  During(StepClock& clock, StepClock::Activity activity)
      : clock_(clock), before_(clock.turn_to(activity)) {}
  ~During() { clock_.turn_to(before_); }
  During(const During&) = delete;

 private:
  StepClock& clock_;
  StepClock::Activity before_;
};

}  // namespace zero::detail
