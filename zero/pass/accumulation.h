// The micro steps of a step: checks the order of the program's calls, begins and ends the passes,
// and counts micro steps and losses. If the order of calls is free (ModelSpec::any_order()), a
// micro step may leave the plan, and other calls may come in between. Belongs to the engine; for
// the program's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zero/pass/micro_step_count.h"
#include "zero/pass/passes.h"
#include "zero/pass/step_clock.h"
#include "zero/pass/step_losses.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Accumulation {
 public:
  // All arguments must outlive this object.
  Accumulation(TrainState& train, CallGuard& guard, PlanWalker& walker, Passes& passes,
               StepClock& clock, StepScalars& scalars)
      : train_(train),
        guard_(guard),
        walker_(walker),
        passes_(passes),
        pass_(passes.micro_step),
        clock_(clock),
        losses_(train, scalars) {}

  // For a loop over Engine::micro_steps().
  std::int64_t begin_loop() { return ++count_.loops; }
  void begin_micro_step(int index, std::int64_t loop);
  // Outside of a loop; returns the index.
  int begin_micro_step(bool last);
  // For a loop over Engine::tasks(): begins a pass over all micro steps of the step.
  void begin_tasks();
  // The scopes of that pass, in order.
  const std::vector<const Instruction*>& tasks();
  // Whether the open micro step, or that of the number in a list of tasks, is the last.
  bool is_last(int index) const {
    return train_.last_micro_step && (!count_.all_at_once || index + 1 == own_micro_steps());
  }
  // Whether another micro step of this rank precedes step().
  bool more_micro_steps() { return begun_micro_steps() < own_micro_steps() || more_repeats(); }
  // After all of the rank's own micro steps: see Recomputation::goes_on().
  bool more_repeats();
  // The mean loss of a micro step that is open, in host or device memory.
  template <class Loss>
  void set_loss(int index, Loss mean) {
    passes_.recomputation.note_loss(mean);
    if (!passes_.recomputation.repeating())
      losses_.add(count_.all_at_once ? index : train_.micro_step, mean);
  }
  const StepLosses& losses() const { return losses_; }
  // Number of this step's micro steps that have ended.
  int ended_micro_steps() const { return count_.ended(); }

  // Call before a scope is opened in the micro step. A pass that has to leave the plan for the
  // scope continues as an agreed pass.
  void admit(Op op, int unit);

  // Call before calls that belong between micro steps.
  void end_open_micro_step();
  // Call before other collective calls: ends a micro step whose backward has begun, unless a scope
  // is open. If the order of calls is free, a micro step that is still in forward continues
  // afterwards.
  void come_to_rest();
  // Checks a call by the column `among` in the table of calls, and comes to rest. Throws the error
  // of an earlier failure, or UsageError.
  void come_to_rest(Call call);
  // Call at rest, before other plans gather into the slots.
  void make_way();
  // Call when parameters have changed, so that slots are gathered again.
  void note_new_values();
  // Discards the gradients of the micro steps so far; returns whether there were any. A forward
  // pass that has run is kept, as the first of the step.
  bool drop_gradients();
  // Throws UsageError unless all micro steps are done. Gradients are averaged over `mean_over`
  // losses, or over the micro steps. Prints once if the program has omitted losses or gradients.
  void end_step(std::optional<double> mean_over);
  // Issues the reductions of a last micro step if none was declared last; returns whether that was
  // so, or more micro steps have followed.
  bool reduce_late();

 private:
  // Number of micro steps of a step, and of those in which this rank has a micro batch.
  int all_micro_steps() const { return static_cast<int>(train_.plan.batch.accumulation); }
  int own_micro_steps() const { return train_.plan.own_micro_steps(); }
  // Number of this rank's own micro steps, including an open micro step.
  int begun_micro_steps() const {
    const bool open = guard_.phase() == Phase::micro_step && !passes_.recomputation.repeating();
    return ended_micro_steps() + (open ? 1 : 0);
  }
  const StepPlan& plan_of_micro_step() const;
  // Whether the ranks agree at the end of each micro step on leaving the plan.
  bool agrees_on_leaving() const {
    return train_.model.any_order && train_.collective() && !train_.plan.rank_independent() &&
           (!train_.keeps_parameters() || train_.plan.sync_each());
  }
  bool someone_leaves(bool self);
  void refuse_among_micro_batches() const;
  void check_order(int index) const;
  // all_at_once: a list of tasks.
  void start_micro_step(int index, std::int64_t loop, bool last, bool all_at_once = false);
  void start_repeated(int index, std::int64_t loop);
  void serve_last_micro_step();
  void end_first_forward();
  void leave_plan(Op op, int unit);
  void begin_agreed();
  void finish_pass();

  TrainState& train_;
  CallGuard& guard_;
  PlanWalker& walker_;
  Passes& passes_;
  Pass& pass_;  // that of the micro step
  StepClock& clock_;
  StepLosses losses_;
  MicroStepCount count_;
  std::vector<const Instruction*> tasks_;
  std::vector<int> forward_;  // units that this rank has opened in forward of the micro step
};

}  // namespace zero::detail
