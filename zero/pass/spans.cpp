#include "zero/pass/spans.h"

#include <algorithm>
#include <chrono>

namespace zero::detail {

std::int64_t steady_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Spans::put(const Span& span) {
  if (ring_.size() < capacity) return ring_.push_back(span);
  ring_[oldest_] = span;
  oldest_ = (oldest_ + 1) % capacity;
}

void Spans::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  put(span);
}

void Spans::begin(const Span& span) {
  const std::lock_guard lock(mutex_);
  running_[span.stream] = span;
}

void Spans::end(PlanStream stream, std::int64_t bytes) {
  const std::int64_t now = steady_nanoseconds();
  const std::lock_guard lock(mutex_);
  Span span = running_[stream];
  running_[stream] = {};
  span.end = now;
  span.bytes = bytes - span.bytes;
  put(span);
  Total& total = totals_[span.op];
  ++total.calls;
  total.bytes += span.bytes;
  total.nanoseconds += span.duration();
}

void Spans::forget(PlanStream stream) {
  const std::lock_guard lock(mutex_);
  running_[stream] = {};
}

std::vector<Span> Spans::newest() const {
  const std::lock_guard lock(mutex_);
  std::vector<Span> spans = ring_;
  std::rotate(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(oldest_), spans.end());
  // Some spans of the oldest step may have been overwritten.
  const auto step = std::ranges::find(spans, Span::Kind::step, &Span::kind);
  if (spans.size() == capacity && step != spans.end()) spans.erase(spans.begin(), step + 1);
  for (const Span& span : running_)
    if (span.begin != 0) spans.push_back(span);
  return spans;
}

Spans::Totals Spans::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace zero::detail
