// What the program's thread does in the steps: a stopwatch that always runs for one activity. While
// stopped (between steps, in evaluations) it keeps track of the activity and charges nothing. It
// may watch what others do meanwhile. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace zero::detail {

class StepClock {
 public:
  enum class Activity : std::uint8_t { other, kernels, waiting, optimizer };
  static constexpr int activity_count = 4;

  // Nanoseconds for which others have worked so far: the two directions of a file, and either.
  using Meters = std::array<std::int64_t, 3>;
  void watch(std::function<Meters()> meters) { meters_ = std::move(meters); }
  // Of those, the ones that passed during the activity.
  const Meters& metered(Activity activity) const {
    return metered_[static_cast<std::size_t>(activity)];
  }

  void start() {
    last_ = Clock::now();
    if (meters_) last_meters_ = meters_();
    running_ = true;
  }
  void stop() {
    turn_to(Activity::other);
    running_ = false;
  }
  // Returns the activity that ends.
  Activity turn_to(Activity next) {
    const Activity ended = activity_;
    activity_ = next;
    if (!running_) return ended;
    const Clock::time_point now = Clock::now();
    spent_[static_cast<std::size_t>(ended)] += now - last_;
    last_ = now;
    if (meters_) read_meters(ended);
    return ended;
  }
  std::int64_t nanoseconds(Activity activity) const {
    return std::chrono::nanoseconds(spent_[static_cast<std::size_t>(activity)]).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void read_meters(Activity ended) {
    const Meters now = meters_();
    for (std::size_t i = 0; i < now.size(); ++i)
      metered_[static_cast<std::size_t>(ended)][i] += now[i] - last_meters_[i];
    last_meters_ = now;
  }

  std::array<Clock::duration, activity_count> spent_{};
  Clock::time_point last_;
  Activity activity_ = Activity::other;
  bool running_ = false;
  std::function<Meters()> meters_;
  std::array<Meters, activity_count> metered_{};
  Meters last_meters_{};
};

// An activity until the end of the block, then again what was before.
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
