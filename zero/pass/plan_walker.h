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
#include <optional>
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

  // Called before an instruction is issued, or a compute step entered, with the stream.
  using Before = std::function<void(const Instruction&, ExecutionStream&)>;

  // The clock is charged for the waits, and for communication that runs inline; the clock's spans
  // record when each instruction runs.
  PlanWalker(const PlanInputs& inputs, Lanes lanes, StepClock& clock, Before before = {});
  PlanWalker(const PlanWalker&) = delete;  // marks return to the walker

  void begin(const StepPlan& plan);
  bool active() const { return plan_ != nullptr; }
  // The next compute step, or null at the end of the plan.
  const Instruction* next_compute() const {
    const std::vector<std::size_t>& steps = steps_[PlanStream::compute];
    const std::size_t next = next_[PlanStream::compute];
    return plan_ == nullptr || next == steps.size() ? nullptr : &plan_->instructions[steps[next]];
  }

  // Makes the compute stream wait for the step's parameters; the gradient slots of a backward scope
  // are awaited only by await_gradient(), or when the scope has ended. Throws UsageError for
  // another step than the next one, or if the step needs the slot of an open scope. `scope`
  // distinguishes scopes of the same target that are open at the same time.
  void enter(Op op, int target, std::int64_t scope = 0);
  void await_gradient(int slot) {
    const During waiting(clock_, StepClock::Activity::waiting);
    follow(PlanStream::compute, {Resource::gradient_slot, slot, true});
  }
  // Only records the end, which takes effect with the next call. Returns false if that scope is not
  // open.
  bool leave(Op op, int target, std::int64_t scope = 0) noexcept;
  // The oldest step that was left and has not taken effect, or null; and its effect, on the streams
  // that wait for it. In between the caller completes the gradients that are final after the step
  // (Instruction::completes). Every other call that walks on settles all of these first.
  const Instruction* ended() const {
    return ended_.empty() ? nullptr : &plan_->instructions[ended_.front()];
  }
  void settle_next();
  // Whether an open step uses the flat unit; and whether the slot is gathered into again before any
  // step uses the unit, so that the contents are no longer needed.
  bool in_use(int flat_unit) const {
    return std::ranges::any_of(open_,
                               [&](const Open& open) { return needs(open.step, flat_unit); });
  }
  bool replaced_before_use(int flat_unit) const;

  // Whether only optional steps come before this step of the plan; and whether the next step is
  // optional, so that the caller may enter and leave it on behalf of the program.
  bool may_come(Op op, int target) const;
  bool may_skip() const { return next_compute() != nullptr && is_optional(*next_compute()); }
  bool in_forward() const {
    return paused_ ||
           (active() && next_[PlanStream::compute] <= std::size_t(plan_->forward_scopes));
  }
  bool forward_remains() const {
    return active() && next_[PlanStream::compute] < std::size_t(plan_->forward_scopes);
  }
  // Issues all that other ranks need in forward. Throws UsageError if forward steps remain.
  void finish_forward();

  // Interrupts the plan, if any, between forward and backward, so that other plans may be walked
  // until resume(). If parameters are sharded, resume() gathers the previous contents of the slots
  // again.
  void pause();
  void resume();
  // The flat unit in each parameter slot, or -1.
  const std::vector<int>& contents() const { return contents_; }
  // Call when parameters have changed.
  void forget_contents() { contents_.assign(contents_.size(), -1); }

  // Issues the remaining instructions. Throws UsageError if compute steps are missing.
  void finish();
  // Issues all instructions of a plan without compute steps.
  void walk(const StepPlan& plan) {
    begin(plan);
    finish();
  }
  // Ends the plan early, on all ranks.
  void abandon() {
    settle();
    open_.clear();  // a scope may outlive the evaluation
    plan_ = nullptr;
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
  void open_next(std::int64_t scope);
  void settle() {
    while (!ended_.empty()) settle_next();
  }
  // Issues all instructions that are ready.
  void pump();
  bool blocks_early(std::size_t number) const;
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

  struct Paused {
    const StepPlan* plan = nullptr;
    ByStream<std::size_t> next{};
    std::vector<char> done;
    std::vector<int> contents;
  };

  const PlanInputs& inputs_;
  const Lanes lanes_;
  StepClock& clock_;
  const Before before_;
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
  std::optional<Paused> paused_;
};

}  // namespace zero::detail
