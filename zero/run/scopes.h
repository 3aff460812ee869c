// Micro steps and the scopes of units in them: checks the order of the program's calls, hands out
// pointers to gathered parameters and gradients, and keeps account of what the program has given:
// losses, and gradients that it has asked for. Owned by the engine; the program's thread, and
// leave() and poison() on any thread that ends a scope.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/run/call_guard.h"
#include "zero/run/device_range.h"
#include "zero/run/free_pass.h"
#include "zero/run/hidden_memory.h"
#include "zero/run/order_learner.h"
#include "zero/run/plan_walker.h"
#include "zero/run/step_agreement.h"
#include "zero/run/step_clock.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Scopes {
 public:
  // All outlive it.
  Scopes(TrainState& train, CallGuard& guard, PlanWalker& walker, OrderLearner& learner,
         HiddenMemory& hidden, StepClock& clock, StepAgreement& agreement);

  // Returns the scope's number, by which it is left. A scope that is open no more (one that was
  // kept beyond its evaluation or its FullModel) ends without effect on others of its unit.
  std::int64_t enter(Op op, int unit);
  void leave(Op op, int unit, std::int64_t scope) noexcept;
  // Both name parameters by their name in the unit, or in the model.
  const void* value(int unit, std::string_view name, DType dtype) const;
  // Of a parameter that rests whole, by its name in the model; null where it rests as a shard.
  const void* resident(std::string_view name, DType dtype) const;
  // Zeroed at its first use in a reduction period; or `beta` says whether kernels add.
  void* gradient(int unit, std::string_view name, DType dtype, float* beta);
  // A compute step has ended: what it leaves for a reduction must be whole. Gradients never asked
  // for count as zero, and so does the padding between parameters.
  void complete_gradients(int flat_unit);

  // Of a loop over Engine::micro_steps().
  std::int64_t begin_pass() { return ++passes_; }
  void begin_micro_step(int index, std::int64_t pass) {
    if (guard_.phase() == Phase::micro_step && train_.micro_step == index && pass_ == pass) return;
    start_micro_step(index, pass, index + 1 == accumulation());
  }
  // Outside of a loop; returns its index.
  int begin_micro_step(bool last);
  void set_loss(double mean) {
    loss_given_ = true;
    loss_sum_ += mean;
    micro_loss_ += mean;
  }
  // In the device's memory.
  void set_loss(const float* mean) {
    loss_given_ = true;
    agreement_.add_loss(mean);
  }

  // Before calls that belong between micro steps.
  void end_open_micro_step();
  // Before other collective calls: ends a micro step whose backward has begun, unless a scope is
  // open. One that is in its forward goes on afterwards, if the order of calls is free.
  void come_to_rest();
  // Parameters have changed: what lies in slots is gathered again.
  void note_new_values();
  // Forgets the gradients of the micro steps so far; says whether there were any. A forward that
  // has been run keeps its place, as the first of its step.
  bool drop_gradients();
  // Micro steps of this step that have ended so far.
  int ended_micro_steps() const { return micro_steps_done_ - free_micro_steps_; }
  // Throws UsageError where a step has begun whose micro steps are not done.
  void refuse_among_micro_steps(const char* call) const;
  // All micro steps are done; throws UsageError where they are not. Gradients are a mean over so
  // many losses, or over the micro steps. Says once what the program has left out.
  void end_accumulation(std::optional<double> mean_over);
  bool inside_any() const {
    if (free_pass().active()) return free_pass().inside_any();
    return learner_.active() ? learner_.inside_any() : walker_.inside_any();
  }
  // Reduces what a last micro step would have, where none was known to be it; says whether that was
  // so, or more micro steps have come after it.
  bool reduce_late();
  // Passes of forward scopes without gradients. Throws UsageError where a step has begun.
  void begin_evaluation();
  // Collective. False once no rank has a batch left; a rank without batches walks along for the
  // gathers of those that have some.
  bool next_evaluation(bool have_batch);
  // Left early, on this rank alone or on all: the next collective call finds out who differs.
  void end_evaluation() noexcept;
  // Of this rank's micro steps, on the host.
  double loss_sum() const { return loss_sum_; }

 private:
  int accumulation() const { return static_cast<int>(train_.plan.batch.accumulation); }
  const std::string& unit_name(int unit) const { return train_.model.units[unit].name; }
  const StepPlan& plan_of_micro_step() const {
    const StepPlans& plans = train_.plan.steps;
    if (train_.micro_step == 0 || slots_changed_)
      return train_.last_micro_step ? plans.only : plans.first;
    return train_.last_micro_step ? plans.last : plans.middle;
  }
  // Whether it is agreed at the end of each micro step who has left the plan.
  bool agrees_on_leaving() const {
    return train_.model.any_order && train_.collective() &&
           (train_.policy().parameters_sharded || train_.plan.sync_each());
  }
  // Evaluation without a plan and without the other ranks.
  bool evaluates_alone() const {
    return train_.model.any_order && !train_.policy().parameters_sharded;
  }
  FreePass& free_pass() { return guard_.phase() == Phase::evaluation ? free_evaluation_ : free_; }
  const FreePass& free_pass() const {
    return guard_.phase() == Phase::evaluation ? free_evaluation_ : free_;
  }
  // Whether no scope of the micro step's backward has been opened.
  bool in_forward() const;
  bool next_evaluation_of_all(bool have_batch);
  void begin_evaluation_pass();
  void end_evaluation_pass();
  bool someone_leaves(bool self);
  void leave_plan();
  void leave_micro_plan();
  void leave_evaluation_plan();
  void begin_free_micro_step();
  void end_free_micro_step();
  void adopt_order(const std::vector<int>& shown);
  void pause_micro_step();
  void resume_micro_step();
  void complete_and_forget(int flat_unit);
  void check_order(int index) const;
  void start_micro_step(int index, std::int64_t pass, bool last);
  void begin_losses();
  void end_learning();
  int find_param(int unit, std::string_view name) const;
  const SegmentBuffers& buffers_of(int param, DType dtype) const;
  void name_unasked_gradients();
  void name_missing_losses();

  TrainState& train_;
  CallGuard& guard_;
  PlanWalker& walker_;
  OrderLearner& learner_;
  HiddenMemory& hidden_;
  StepClock& clock_;
  StepAgreement& agreement_;
  FreePass free_, free_evaluation_;
  std::optional<PlanWalker::Paused> paused_;  // the micro step, while an evaluation runs
  bool resumes_micro_step_ = false;           // after the evaluation
  bool slots_changed_ = false;   // since the micro step before: they hold what no plan foresees
  std::vector<int> forward_;     // units that this rank has opened in the plan's forward
  std::vector<int> used_order_;  // as passes have shown it, without units that none has used
  int free_micro_steps_ = 0;     // of this step: what micro steps have left behind
  bool more_after_last_ =
      false;  // a micro step has come after the one that was said to be the last
  static constexpr std::int64_t no_loop = -1;
  // Beside 0 and 1, which say whether a rank has a batch.
  static constexpr std::int64_t leaves_evaluation_plan_ = 2;
  std::int64_t scopes_ = 0;             // opened so far
  std::int64_t passes_ = 0, pass_ = 0;  // begun, and the current one
  StepPlan backward_;                   // of the micro step that shows the order
  int micro_steps_done_ = 0, evaluation_passes_ = 0;
  double loss_sum_ = 0, micro_loss_ = 0;  // of the step and of its last micro step so far
  bool loss_given_ = false;               // in this micro step
  int losses_missing_ = 0;                // in this step
  bool missing_loss_named_ = false, unasked_named_ = false;
  std::vector<char> touched_;       // by parameter: its gradient was asked for in this period
  std::vector<char> ever_touched_;  // by parameter
  std::vector<std::optional<DeviceRange>> open_ranges_;  // by unit: forward, backward
};

}  // namespace zero::detail
