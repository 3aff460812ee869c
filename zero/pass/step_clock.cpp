#include "zero/pass/step_clock.h"

namespace zero::detail {

namespace {

// Shorter spans become part of the previous span, so that a request for a gradient that is ready
// leaves no trace.
constexpr std::int64_t shortest_span = 2000;  // nanoseconds

Span span_of(const StepClock::Doing& doing, std::int64_t step, std::int64_t begin) {
  return {.begin = begin,
          .step = static_cast<std::int32_t>(step),
          .target = doing.target,
          .op = doing.op,
          .kind = static_cast<Span::Kind>(doing.activity)};
}

}  // namespace

void StepClock::start(std::int64_t step) {
  step_ = step;
  step_begin_ = last_ = steady_nanoseconds();
  pending_ = {};
  running_ = true;
  spans_.begin(span_of(doing_, step_, last_));
}

void StepClock::stop() {
  if (!running_) return;
  const Doing ended = doing_;
  doing_ = {};
  change(ended);
  running_ = false;
  spans_.add(pending_);
  spans_.add({.begin = step_begin_,
              .end = last_,
              .step = static_cast<std::int32_t>(step_),
              .kind = Span::Kind::step});
  spans_.forget(PlanStream::compute);
}

void StepClock::change(const Doing& ended) {
  const std::int64_t now = steady_nanoseconds();
  spent_[ended.activity] += now - last_;
  if (ended.activity == Activity::kernels && ended.op == Op::backward) backward_ += now - last_;
  record(ended, now);
  last_ = now;
  spans_.begin(span_of(doing_, step_, now));
}

void StepClock::record(const Doing& ended, std::int64_t end) {
  Span span = span_of(ended, step_, last_);
  span.end = end;
  const bool grows =
      pending_.begin != 0 && (span.concerns_same(pending_) || span.duration() < shortest_span);
  if (grows) {
    pending_.end = end;
    return;
  }
  if (pending_.begin != 0) spans_.add(pending_);
  pending_ = span;
}

}  // namespace zero::detail
