// Walks step plans on one host thread. It checks that compute steps come in the planned order,
// issues the instructions of other streams as soon as those that they come after have been issued,
// and makes streams wait for each other where they access the same, also from one plan to the next.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zero/base/stream.h"
#include "zero/plan/access_history.h"
#include "zero/plan/step_plan.h"
#include "zero/run/step_clock.h"

namespace zero::detail {

class PlanWalker {
 public:
  // A stream, and who queues the plan's instructions to it; the program computes itself.
  struct Lane {
    ExecutionStream* stream = nullptr;
    std::function<void(const Instruction&)> issue;
  };
  using Lanes = ByStream<Lane>;

  // The clock is charged for the waits, and for communication that runs inline. `completed` hears
  // of flat units to whose gradients no later scope adds.
  PlanWalker(const PlanInputs& inputs, Lanes lanes, StepClock& clock,
             std::function<void(int)> completed);
  PlanWalker(const PlanWalker&) = delete;  // marks return to it

  void begin(const StepPlan& plan);
  bool active() const { return plan_ != nullptr; }
  // The compute step that must come next, or null at the end of the plan.
  const Instruction* next_compute() const {
    const std::vector<std::size_t>& steps = steps_[PlanStream::compute];
    const std::size_t next = next_[PlanStream::compute];
    return plan_ == nullptr || next == steps.size() ? nullptr : &plan_->instructions[steps[next]];
  }

  // Passes over optional steps, of which this rank does what concerns the others, and blocks the
  // compute stream until the step's parameters are there; the gradient slots of a backward scope
  // are awaited only by await_gradient(), or when it has ended. Throws UsageError for a step out of
  // order, or one that needs the slot of an open scope.
  // `scope` tells it from others of the same target that are open at the same time.
  void enter(Op op, int target, std::int64_t scope = 0);
  void await_gradient(int slot) {
    const During waiting(clock_, StepClock::Activity::waiting);
    follow(PlanStream::compute, {Resource::gradient_slot, slot, true});
  }
  // Records only: its effects come with the next call. False where that scope is not open.
  bool leave(Op op, int target, std::int64_t scope = 0) noexcept;
  bool inside(Op op, int target) const {
    return std::ranges::any_of(
        open_, [&](const Open& open) { return plan_->instructions[open.step].is(op, target); });
  }
  bool inside_any() const { return !open_.empty(); }
  // Whether an open step uses the flat unit; and whether its slot is gathered into again before any
  // other step uses it, so that its contents are no longer needed.
  bool in_use(int flat_unit) const {
    return std::ranges::any_of(open_,
                               [&](const Open& open) { return needs(open.step, flat_unit); });
  }
  bool replaced_before_use(int flat_unit) const;

  // Whether a step of the program does not come next, nor after optional ones alone.
  bool leaves_plan(Op op, int target) const { return active() && !may_come(op, target); }
  bool in_forward() const {
    return active() && next_[PlanStream::compute] <= std::size_t(plan_->forward_scopes);
  }
  // Passes over the rest of forward, so that all ranks have issued the same.
  void finish_forward();
  struct OpenScope {
    Op op;
    int target;
    std::int64_t scope;
  };
  // Ends the open steps for the plan, in the order of their opening; the program's scopes go on.
  std::vector<OpenScope> take_open();

  // A plan that is left for another one, and goes on later.
  struct Paused {
    const StepPlan* plan = nullptr;
    ByStream<std::size_t> next{};
    std::vector<char> done;
    std::vector<int> contents;
  };
  Paused pause();
  // Gathers again what slots held, where parameters are sharded.
  void resume(Paused&& paused);
  // By parameter slot: the flat unit that lies there, or -1.
  const std::vector<int>& contents() const { return contents_; }
  // Parameters have changed.
  void forget_contents() { contents_.assign(contents_.size(), -1); }

  // Issues the rest. Throws UsageError when compute steps are missing that are not optional.
  void finish();
  // Ends the plan early, when no rank goes on with it.
  void abandon() {
    settle();
    open_.clear();  // a scope may outlive its evaluation
    plan_ = nullptr;
  }
  // Issues everything without computing: this rank serves the others' gathers.
  void walk_without_compute() {
    while (next_compute() != nullptr) pass_over_next();
    finish();
  }

 private:
  // A point in a stream, which others wait for.
  struct Mark {
    std::int64_t number = 0;  // in its stream
    PlanStream stream{};
    // By stream: the last mark that has finished whenever this one has.
    ByStream<std::int64_t> finished{};
    std::unique_ptr<Event> event;
  };
  using Point = std::shared_ptr<const Mark>;

  ExecutionStream& at(PlanStream stream) const { return *lanes_[stream].stream; }
  // Makes what the stream is given from now on wait for what the access has to follow.
  void follow(PlanStream stream, const ResourceAccess& access);
  // Notes that the instruction has been given to its stream.
  void mark(std::size_t instruction);
  std::shared_ptr<Mark> create_mark(PlanStream stream);
  bool is_optional(const Instruction& instruction) const {
    return target_of(instruction.op) == Target::unit &&
           inputs_.model->units[instruction.target].optional;
  }
  // Whether the step comes next but for optional ones.
  bool may_come(Op op, int target) const;
  void open_next(std::int64_t scope);
  void pass_over_next() {
    const Instruction& next = *next_compute();
    open_next(0);
    leave(next.op, next.target);
    settle();
  }
  void settle();
  // Issues what is ready.
  void pump();
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
  const std::function<void(int)> completed_;
  // By stream: marks for reuse, and for each other stream the last mark that it has waited for; for
  // the stream itself, its own last mark.
  ByStream<std::vector<std::unique_ptr<Mark>>> spare_;
  ByStream<ByStream<std::int64_t>> finished_{};
  AccessHistory<Point> history_;

  const StepPlan* plan_ = nullptr;
  // By stream: its instructions, and how many have been entered or issued.
  ByStream<std::vector<std::size_t>> steps_;
  ByStream<std::size_t> next_{};
  std::vector<char> done_;  // by instruction: given to its stream; of compute, settled
  struct Open {
    std::size_t step;  // by instruction
    std::int64_t scope;
  };
  std::vector<Open> open_;          // entered compute steps
  std::vector<std::size_t> ended_;  // left, not settled
  std::vector<int> contents_;       // by parameter slot
};

}  // namespace zero::detail
