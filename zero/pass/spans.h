// The newest spans of an engine's streams, in a ring of fixed size, and what is running now. The
// program's thread has spans without gaps in a step, each other stream a span per instruction. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "zero/plan/step_plan.h"

namespace zero::detail {

// Nanoseconds of this host's steady clock.
std::int64_t steady_nanoseconds();

struct Span {
  // The first four are those of the program's thread, as StepClock::Activity.
  enum class Kind : std::uint8_t { other, kernels, waiting, optimizer, step, save, instruction };

  std::int64_t begin = 0, end = 0;  // nanoseconds; end 0: still running
  std::int64_t bytes = 0;           // sent to other ranks
  std::int32_t step = 0;            // 1 is the first
  std::int32_t target = -1;         // of the instruction, or of the awaited instruction; -1: none
  Op op{};
  Kind kind{};
  PlanStream stream = PlanStream::compute;

  std::int64_t duration() const { return end - begin; }
  bool concerns_same(const Span& other) const {
    return kind == other.kind && op == other.op && target == other.target;
  }
};

class Spans {
 public:
  static constexpr std::size_t capacity = 1 << 15;  // 1.25 MiB

  struct Total {
    std::int64_t calls = 0, bytes = 0, nanoseconds = 0;
  };
  using Totals = EnumArray<Op, Total, op_count>;

  Spans() { ring_.reserve(capacity); }

  void add(const Span& span);
  // Records the begin of a span; end() adds the span to the ring. The bytes are the stream's total
  // so far.
  void begin(const Span& span);
  void end(PlanStream stream, std::int64_t bytes);
  // Forgets what is running on the stream.
  void forget(PlanStream stream);

  // Returns the ring from the oldest complete step to the newest span, then what is running.
  std::vector<Span> newest() const;
  // Sums over all instructions that have ended.
  Totals totals() const;

 private:
  void put(const Span& span);

  mutable std::mutex mutex_;
  std::vector<Span> ring_;  // grows up to the reserved capacity
  std::size_t oldest_ = 0;
  ByStream<Span> running_{};  // begin 0: none
  Totals totals_{};
};

}  // namespace zero::detail
