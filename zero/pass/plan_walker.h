// Walks step plans on one host thread: checks that compute steps come in the planned order, issues
// the instructions of other streams as soon as all predecessors have been issued, and makes streams
// that access the same resource wait for each other, also from plan to plan. For each plan call
// begin(), then enter() and leave() for the compute steps, then finish(), or abandon() on all
// ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zero/base/stream.h"
#include "zero/pass/step_clock.h"
#include "zero/plan/access_history.h"
#include "zero/plan/step_plan.h"

namespace zero::detail {

class PlanWalker {
 public:
  // A stream, and the function that queues the plan's instructions to it; compute steps are the
  // program's. `sent`: the bytes that the stream's work has sent so far, if any. If `runs_on_host`,
  // spans last from the begin to the end of the work, otherwise for the call that issues the work.
  struct Lane {
    ExecutionStream* stream = nullptr;
    std::function<void(const Instruction&)> issue;
    std::function<std::int64_t()> sent = {};
    bool runs_on_host = false;
  };
  using Lanes = ByStream<Lane>;

  struct Hooks {
    // Called with each flat unit when its gradient is final.
    std::function<void(int)> completed = [](int) {};
    // Called before an instruction is issued, or a compute step entered, with the stream.
    std::function<void(const Instruction&, ExecutionStream&)> before = [](const Instruction&,
                                                                          ExecutionStream&) {};
  };

  // The clock is charged for the waits, and for communication that runs inline; the clock's spans
  // record when each instruction runs.
  PlanWalker(const PlanInputs& inputs, Lanes lanes, StepClock& clock, Hooks hooks);
  PlanWalker(const PlanWalker&) = delete;  // marks return to the walker

  void begin(const StepPlan& plan);
  bool active() const { return plan_ != nullptr; }
  // The next compute step, or null at the end of the plan.
  const Instruction* next_compute() const {
    const std::vector<std::size_t>& steps = steps_[PlanStream::compute];
    const std::size_t next = next_[PlanStream::compute];
    return plan_ == nullptr || next == steps.size() ? nullptr : &plan_->instructions[steps[next]];
  }

  // Skips optional steps, doing their work for other ranks, and makes the compute stream wait for
  // the step's parameters; the gradient slots of a backward scope are awaited only by
  // await_gradient(), or when the scope has ended. Throws UsageError for a step out of order, or if
  // the step needs the slot of an open scope. `scope` distinguishes scopes of the same target that
  // are open at the same time.
  void enter(Op op, int target, std::int64_t scope = 0);
  void await_gradient(int slot) {
    const During waiting(clock_, StepClock::Activity::waiting);
    follow(PlanStream::compute, {Resource::gradient_slot, slot, true});
  }
  // Only records the end, which takes effect with the next call. Returns false if that scope is not
  // open.
  bool leave(Op op, int target, std::int64_t scope = 0) noexcept;
  bool inside(Op op, int target) const {
    return std::ranges::any_of(
        open_, [&](const Open& open) { return plan_->instructions[open.step].is(op, target); });
  }
  bool inside_any() const { return !open_.empty(); }
  // Whether an open step uses the flat unit; and whether the slot is gathered into again before any
  // step uses the unit, so that the contents are no longer needed.
  bool in_use(int flat_unit) const {
    return std::ranges::any_of(open_,
                               [&](const Open& open) { return needs(open.step, flat_unit); });
  }
  bool replaced_before_use(int flat_unit) const;

  // Whether this step of the program leaves the plan, even if optional steps are skipped.
  bool leaves_plan(Op op, int target) const { return active() && !may_come(op, target); }
  bool in_forward() const {
    return active() && next_[PlanStream::compute] <= std::size_t(plan_->forward_scopes);
  }
  // Skips the remaining forward steps, so that all ranks have issued the same instructions.
  void finish_forward();
  struct OpenScope {
    Op op;
    int target;
    std::int64_t scope;
  };
  // Ends the open steps in the plan and returns these in the order of opening; the program's scopes
  // stay open.
  std::vector<OpenScope> take_open();

  // State of a plan that is interrupted by another plan, and resumed later.
  struct Paused {
    const StepPlan* plan = nullptr;
    ByStream<std::size_t> next{};
    std::vector<char> done;
    std::vector<int> contents;
  };
  Paused pause();
  // If parameters are sharded, gathers the previous contents of the slots again.
  void resume(Paused&& paused);
  // The flat unit in each parameter slot, or -1.
  const std::vector<int>& contents() const { return contents_; }
  // Call when parameters have changed.
  void forget_contents() { contents_.assign(contents_.size(), -1); }

  // Issues the remaining instructions. Throws UsageError if compute steps are missing that are not
  // optional.
  void finish();
  // Ends the plan early, on all ranks.
  void abandon() {
    settle();
    open_.clear();  // a scope may outlive the evaluation
    plan_ = nullptr;
  }
  // Issues everything without computing: this rank serves the gathers of other ranks.
  void walk_without_compute() {
    while (next_compute() != nullptr) pass_over_next();
    finish();
  }

 private:
  // A point in a stream, for other streams to wait for.
  struct Mark {
    std::int64_t number = 0;  // within the stream
    PlanStream stream{};
    Op op{};
    int target = 0;
    // For each stream: the last mark that is finished whenever this mark is.
    ByStream<std::int64_t> finished{};
    std::unique_ptr<Event> event;
  };
  using Point = std::shared_ptr<const Mark>;

  ExecutionStream& at(PlanStream stream) const { return *lanes_[stream].stream; }
  // Makes later work of the stream wait for the accesses that this access must follow.
  void follow(PlanStream stream, const ResourceAccess& access);
  // Records that the instruction has been given to the stream.
  void mark(std::size_t instruction);
  std::shared_ptr<Mark> create_mark(PlanStream stream);
  bool is_optional(const Instruction& instruction) const {
    return target_of(instruction.op) == Target::unit &&
           inputs_.model->units[instruction.target].optional;
  }
  // Whether only optional steps come before this step.
  bool may_come(Op op, int target) const;
  void open_next(std::int64_t scope);
  void pass_over_next() {
    const Instruction& next = *next_compute();
    open_next(0);
    leave(next.op, next.target);
    settle();
  }
  void settle();
  // Issues all instructions that are ready.
  void pump();
  void issue(const Instruction& instruction);
  std::string describe(const Instruction& instruction) const {
    return std::string(name_of(instruction.op)) + " of unit " +
           inputs_.model->units[instruction.target].name;
  }
  bool needs(std::size_t step, int flat_unit) const {
    const Instruction& instruction = plan_->instructions[step];
    return target_of(instruction.op) == Target::unit &&
           inputs_.layout->needs(instruction.target, flat_unit);
  }

  void list_steps();

  const PlanInputs& inputs_;
  const Lanes lanes_;
  StepClock& clock_;
  const Hooks hooks_;
  // For each stream: marks for reuse, and per stream the last mark waited for; for the stream
  // itself, the newest mark.
  ByStream<std::vector<std::unique_ptr<Mark>>> spare_;
  ByStream<ByStream<std::int64_t>> finished_{};
  AccessHistory<Point> history_;

  const StepPlan* plan_ = nullptr;
  // For each stream: the instructions, and the number of those entered or issued.
  ByStream<std::vector<std::size_t>> steps_;
  ByStream<std::size_t> next_{};
  std::vector<char> done_;  // per instruction: given to the stream; for compute, settled
  struct Open {
    std::size_t step;  // index of the instruction
    std::int64_t scope;
  };
  std::vector<Open> open_;          // entered compute steps
  std::vector<std::size_t> ended_;  // left, but not settled
  std::vector<int> contents_;       // per parameter slot
};

}  // namespace zero::detail
