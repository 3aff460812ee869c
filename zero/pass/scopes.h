// Micro steps and the scopes of units: checks the order of the program's calls, returns pointers to
// gathered parameters and gradients, and records the program's part: losses, and requested
// gradients. Belongs to the engine; for the program's thread, except for leave() and poison(),
// called on any thread that ends a scope.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/pass/device_range.h"
#include "zero/pass/free_pass.h"
#include "zero/pass/hidden_memory.h"
#include "zero/pass/order_learner.h"
#include "zero/pass/plan_walker.h"
#include "zero/pass/recomputation.h"
#include "zero/pass/step_clock.h"
#include "zero/runtime/call_guard.h"
#include "zero/state/step_scalars.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class Scopes {
 public:
  // All arguments must outlive this object.
  Scopes(TrainState& train, CallGuard& guard, PlanWalker& walker, OrderLearner& learner,
         HiddenMemory& hidden, StepClock& clock, StepScalars& scalars);

  // Returns the scope's number, to be passed to leave(). A scope that is no longer open (kept
  // beyond the evaluation or FullModel) ends without effect on other scopes of the unit.
  std::int64_t enter(Op op, int unit);
  void leave(Op op, int unit, std::int64_t scope) noexcept;
  // Parameters are named as in the unit, or as in the model.
  const void* value(int unit, std::string_view name, DType dtype) const;
  // Returns a parameter that is stored whole, by name in the model; null if sharded.
  const void* resident(std::string_view name, DType dtype) const;
  // Zeroed at the first use in a reduction period; or `beta` states whether kernels add.
  void* gradient(int unit, std::string_view name, DType dtype, float* beta);
  // Completes gradients for a reduction after a compute step: gradients never requested are set to
  // zero, and so is the padding between parameters.
  void complete_gradients(int flat_unit);

  // For a loop over Engine::micro_steps().
  std::int64_t begin_pass() { return ++passes_; }
  void begin_micro_step(int index, std::int64_t pass) {
    if (index >= own_micro_steps()) return start_repeated(index, pass);
    if (guard_.phase() == Phase::micro_step && train_.micro_step == index && pass_ == pass) return;
    start_micro_step(index, pass, index + 1 == accumulation());
  }
  // Outside of a loop; returns the index.
  int begin_micro_step(bool last);
  // Whether another micro step of this rank precedes step().
  bool more_micro_steps() { return begun_micro_steps() < own_micro_steps() || more_repeats(); }
  // After all of the rank's own micro steps: see Recomputation::goes_on().
  bool more_repeats();
  std::int64_t number(int micro_step) const { return recomputation_.number(micro_step); }
  std::vector<std::int64_t> micro_batches(std::int64_t step) const {
    return recomputation_.micro_batches(step);
  }
  void set_loss(double mean) {
    loss_given_ = true;
    recomputation_.note_loss(mean);
    if (recomputation_.repeating()) return;
    loss_sum_ += mean;
    micro_loss_ += mean;
    if (!losses_.empty()) losses_[train_.micro_step] += mean;
  }
  // Overload for device memory.
  void set_loss(const float* mean) {
    loss_given_ = true;
    recomputation_.note_loss(mean);
    if (!recomputation_.repeating()) scalars_.add_loss(mean, train_.micro_step);
  }

  // Call before calls that belong between micro steps.
  void end_open_micro_step();
  // Call before other collective calls: ends a micro step whose backward has begun, unless a scope
  // is open. If the order of calls is free, a micro step that is still in forward continues
  // afterwards.
  void come_to_rest();
  // Checks a call by the column `among` in the table of calls, and comes to rest. Throws the error
  // of an earlier failure, or UsageError.
  void come_to_rest(Call call);
  // Call when parameters have changed, so that slots are gathered again.
  void note_new_values();
  // Discards the gradients of the micro steps so far; returns whether there were any. A forward
  // pass that has run is kept, as the first of the step.
  bool drop_gradients();
  // Number of this step's micro steps that have ended.
  int ended_micro_steps() const { return micro_steps_done_ - free_micro_steps_; }
  // Throws UsageError unless all micro steps are done. Gradients are averaged over `mean_over`
  // losses, or over the micro steps. Prints once if the program has omitted losses or gradients.
  void end_accumulation(std::optional<double> mean_over);
  bool inside_any() const {
    if (free_pass().active()) return free_pass().inside_any();
    return learner_.active() ? learner_.inside_any() : walker_.inside_any();
  }
  // Issues the reductions of a last micro step if none was declared last; returns whether that was
  // so, or more micro steps have followed.
  bool reduce_late();
  // Begins passes of forward scopes without gradients. Throws UsageError if a step has begun.
  void begin_evaluation();
  // Collective. Returns false once no rank has a batch left; a rank without batches takes part in
  // the gathers of other ranks.
  bool next_evaluation(bool have_batch);
  // Ends the evaluation early, on this rank only or on all: the next collective call detects ranks
  // that differ.
  void end_evaluation() noexcept;
  // Sum over this rank's micro steps, on the host.
  double loss_sum() const { return loss_sum_; }
  // With zero_core.rank_independent: of each micro step; otherwise empty.
  const std::vector<double>& losses() const { return losses_; }

 private:
  int accumulation() const { return static_cast<int>(train_.plan.batch.accumulation); }
  // Number of micro steps in which this rank has a micro batch.
  int own_micro_steps() const { return train_.plan.own_micro_steps(); }
  // Number of this rank's own micro steps, including an open micro step.
  int begun_micro_steps() const {
    const bool open = guard_.phase() == Phase::micro_step && !recomputation_.repeating();
    return ended_micro_steps() + (open ? 1 : 0);
  }
  const std::string& unit_name(int unit) const { return train_.model.units[unit].name; }
  const StepPlan& plan_of_micro_step() const {
    const StepPlans& plans = train_.plan.steps;
    if (train_.micro_step == 0 || slots_changed_)
      return train_.last_micro_step ? plans.only : plans.first;
    return train_.last_micro_step ? plans.last : plans.middle;
  }
  // Whether the ranks agree at the end of each micro step on leaving the plan.
  bool agrees_on_leaving() const {
    return train_.model.any_order && train_.collective() && !train_.plan.rank_independent() &&
           (!train_.keeps_parameters() || train_.plan.sync_each());
  }
  // Whether an evaluation runs without a plan and without the other ranks.
  bool evaluates_alone() const { return train_.model.any_order && train_.keeps_parameters(); }
  FreePass& free_pass() { return guard_.phase() == Phase::evaluation ? free_evaluation_ : free_; }
  const FreePass& free_pass() const {
    return guard_.phase() == Phase::evaluation ? free_evaluation_ : free_;
  }
  // Whether no backward scope of the micro step has been opened.
  bool in_forward() const;
  bool next_evaluation_of_all(bool have_batch);
  void begin_evaluation_pass();
  void end_evaluation_pass();
  bool someone_leaves(bool self);
  void leave_plan(Op op, int unit);
  void leave_micro_plan(Op op, int unit);
  void leave_evaluation_plan();
  void begin_free_micro_step();
  void end_free_micro_step();
  void adopt_order(const std::vector<int>& shown);
  void refuse_other_order(Op op, int unit) const;
  // Throws UsageError if a step has begun and its micro steps are not done.
  void refuse_among_micro_steps(const char* call) const;
  void refuse_among_micro_batches() const;
  void pause_micro_step();
  void resume_micro_step();
  void complete_and_forget(int flat_unit);
  void check_order(int index) const;
  void start_micro_step(int index, std::int64_t pass, bool last);
  void start_repeated(int index, std::int64_t pass);
  void serve_last_micro_step();
  void begin_losses();
  void end_learning();
  // Returns the plan of the rest of a micro step whose forward has shown the order.
  StepPlan learn_order(bool last);
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
  StepScalars& scalars_;
  Recomputation recomputation_;
  FreePass free_, free_evaluation_;
  std::optional<PlanWalker::Paused> paused_;  // the micro step during an evaluation
  bool resumes_micro_step_ = false;           // after the evaluation
  bool slots_changed_ = false;    // since the previous micro step: no plan matches the contents
  std::vector<int> forward_;      // units that this rank has opened in the plan's forward
  std::vector<int> used_order_;   // as shown by passes, without unused units
  int free_micro_steps_ = 0;      // in this step: continuations of micro steps that left the plan
  bool more_after_last_ = false;  // a micro step has followed the declared last
  static constexpr std::int64_t no_loop = -1;
  // A third value next to 0 and 1 for "has no batch" and "has a batch".
  static constexpr std::int64_t leaves_evaluation_plan_ = 2;
  std::int64_t scopes_ = 0;             // number opened so far
  std::int64_t passes_ = 0, pass_ = 0;  // number begun, and the current pass
  StepPlan backward_;                   // for the micro step that shows the order
  int micro_steps_done_ = 0, evaluation_passes_ = 0;
  double loss_sum_ = 0, micro_loss_ = 0;  // sums of the step, and of the newest micro step
  std::vector<double> losses_;
  bool loss_given_ = false;  // in this micro step
  int losses_missing_ = 0;   // in this step
  bool missing_loss_named_ = false, unasked_named_ = false;
  std::vector<char> touched_;       // per parameter: the gradient was requested in this period
  std::vector<char> ever_touched_;  // per parameter
  std::vector<std::optional<DeviceRange>> open_ranges_;           // per unit: forward, backward
  std::vector<std::pair<std::int64_t, StepClock::Doing>> doing_;  // open scopes
};

}  // namespace zero::detail
