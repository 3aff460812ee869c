// Walks a step plan on one host thread: checks that compute steps come in the planned order, issues
// the instructions of the other streams as soon as what it waits for has been recorded, and keeps
// streams apart by events.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zero/base/stream.h"
#include "zero/plan/step_plan.h"
#include "zero/step_clock.h"

namespace zero::detail {

class PlanWalker {
 public:
  struct Hooks {
    std::function<void(const Instruction&)> issue;    // queue an instruction of another stream
    std::function<void(const Instruction&)> settled;  // a compute step has ended
    std::function<std::string(int)> unit_name;
  };

  // The clock is charged for the waits, and for communication that runs inline.
  // Streams are in the order of PlanStream.
  using Streams = std::array<ExecutionStream*, plan_stream_count>;
  PlanWalker(const PlanInputs& inputs, const Streams& streams, StepClock& clock, Hooks hooks);

  void begin(const StepPlan& plan);
  bool active() const { return plan_ != nullptr; }
  // The compute step that must come next, or null at the end of the plan.
  const Instruction* next_compute() const;

  // Blocks the compute stream until the step's parameters are there; a gradient slot is awaited
  // only by await(). Throws UsageError for a step out of order, or one that needs the slot of an
  // open scope.
  void enter(Op op, int target);
  void await(EventId event);
  // Records only: its effects come with the next call.
  void leave(Op op, int target) noexcept;
  bool inside(Op op, int target) const;
  bool inside_any() const { return !open_.empty(); }
  // Whether an open step uses the flat unit, and whether something is gathered into its slot before
  // another does: then what lies there has been used.
  bool in_use(int flat_unit) const;
  bool replaced_before_use(int flat_unit) const;

  // Issues the rest. Throws UsageError when compute steps are missing.
  void finish();
  // Ends the plan where it stands, when no rank goes on with it.
  void abandon();
  // Issues everything without computing: this rank serves the others' gathers.
  void walk_without_compute();

 private:
  std::size_t index_of(EventId event) const;
  void settle();
  void pump();
  // Issues what is ready of one stream; true where there was something.
  bool pump(std::size_t stream);
  std::string describe(const Instruction& instruction) const;
  bool needs(std::size_t step, int flat_unit) const;

  const PlanInputs& inputs_;
  Hooks hooks_;
  Streams streams_;
  ExecutionStream& compute_;
  StepClock& clock_;
  std::vector<std::size_t> first_event_;  // by kind
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<int> signalled_;  // in this plan, by event

  const StepPlan* plan_ = nullptr;
  // By stream: its instructions, and how many have been entered or issued.
  std::array<std::vector<std::size_t>, plan_stream_count> steps_;
  std::array<std::size_t, plan_stream_count> next_{};
  std::vector<std::size_t> open_;   // entered compute steps, by instruction
  std::vector<std::size_t> ended_;  // left, not settled
};

}  // namespace zero::detail
