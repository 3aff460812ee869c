// Time of the program's thread in the steps: a stopwatch that always runs for one activity, and
// records each as a span. While stopped (between steps, in evaluations) the clock follows the
// activity and charges nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zero/base/enum_array.h"
#include "zero/pass/spans.h"

namespace zero::detail {

class StepClock {
 public:
  enum class Activity : std::uint8_t { other, kernels, waiting, optimizer };
  static constexpr int activity_count = 4;

  // An activity, and the instruction concerned or awaited.
  struct Doing {
    Activity activity = Activity::other;
    Op op{};
    int target = -1;

    bool operator==(const Doing&) const = default;
  };

  // `step` counts from 1.
  void start(std::int64_t step);
  void stop();
  // Returns what ended.
  Doing turn_to(const Doing& next) {
    const Doing ended = doing_;
    doing_ = next;
    if (running_ && next != ended) change(ended);
    return ended;
  }
  // The activity stays, for another instruction.
  void turn_to(Op op, int target) { turn_to({doing_.activity, op, target}); }
  const Doing& doing() const { return doing_; }

  std::int64_t nanoseconds(Activity activity) const { return spent_[activity]; }
  // The part of the kernels that is in backward scopes.
  std::int64_t backward_nanoseconds() const { return backward_; }
  std::int64_t step() const { return step_; }
  Spans& spans() { return spans_; }
  const Spans& spans() const { return spans_; }

 private:
  void change(const Doing& ended);
  void record(const Doing& ended, std::int64_t end);

  Spans spans_;
  EnumArray<Activity, std::int64_t, activity_count> spent_{};
  std::int64_t backward_ = 0;
  Doing doing_;
  bool running_ = false;
  std::int64_t step_ = 0, step_begin_ = 0, last_ = 0;
  Span pending_;  // may still grow; begin 0: none
};

// Sets an activity until the end of the block, then restores the previous activity.
class [[nodiscard]] During {
 public:
  During(StepClock& clock, const StepClock::Doing& doing)
      : clock_(clock), before_(clock.turn_to(doing)) {}
  // The instruction stays.
  During(StepClock& clock, StepClock::Activity activity)
      : During(clock, {activity, clock.doing().op, clock.doing().target}) {}
  ~During() { clock_.turn_to(before_); }
  During(const During&) = delete;

 private:
  StepClock& clock_;
  StepClock::Doing before_;
};

}  // namespace zero::detail
