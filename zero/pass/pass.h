// A pass of the program over the units: the scopes of a micro step or of an evaluation. Call
// enter() and leave() for each scope, then finish(). Of two kinds:
//
// A planned pass walks a step plan. Scopes of optional units that the program leaves out are
// skipped, and gradients are completed before the walker issues their reductions.
//
// In an agreed pass the ranks exchange, before each scope, the unit that each is about to open, and
// all gather the first of these. The first forward pass of a model that learns its order
// (ModelSpec::learn_order()) is of this kind, and so is the rest of a pass that has left the plan
// (ModelSpec::any_order()): there, a gradient is reduced when its slot is needed or at the end.
//
// Belongs to Passes; for the program's thread, except for leave().
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "zero/pass/gradient_use.h"
#include "zero/pass/hidden_memory.h"
#include "zero/pass/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

// `number` distinguishes scopes of the same unit that are open at the same time.
struct OpenScope {
  Op op{};
  int unit = 0;
  std::int64_t number = 0;
  int use = 0;  // of the unit in the pass, or in tasks the micro batch; set by Pass::enter()

  bool operator==(const OpenScope& other) const {
    return op == other.op && unit == other.unit && number == other.number;
  }
};

class Pass {
 public:
  // All arguments must outlive this object.
  Pass(TrainState& train, PlanWalker& walker, HiddenMemory& hidden, GradientUse& gradients)
      : train_(train),
        walker_(walker),
        hidden_(hidden),
        gradients_(gradients),
        forwards_(train.model.units.size()),
        once_each_(train.model.has_outputs() || train.model.is_stage()) {}

  // Begins a planned pass; the plan must outlive the pass.
  void follow(const StepPlan& plan) {
    end();
    std::ranges::fill(forwards_, 0);
    walker_.begin(plan);
  }
  struct Terms {
    bool shows_order = false;  // to a model that learns its order, so units must nest
    bool alone = false;        // exchanges nothing; correct only if no scope needs an exchange
  };
  // Begins an agreed pass.
  void agree(const Terms& terms);
  bool follows_plan() const { return !agreed_; }
  bool shows_order() const { return agreed_ && terms_.shows_order; }

  // Gathers the unit's parameters, and makes the compute stream wait for the gathers. Collective in
  // an agreed pass: this rank first takes part in the scopes of other ranks that come before its
  // own, forward before backward, and within a direction in the order of units. Throws UsageError
  // for a scope out of order, or if the unit needs the slot of an open scope.
  void enter(OpenScope scope);
  // Only records the end, which takes effect with the next call. Returns false if that scope is not
  // open. Any thread.
  bool leave(const OpenScope& scope) noexcept;
  bool inside(Op op, int unit) const {
    return std::ranges::any_of(
        open_, [&](const OpenScope& scope) { return scope.op == op && scope.unit == unit; });
  }
  // In the order of opening.
  const std::vector<OpenScope>& open() const { return open_; }
  // Whether no backward scope has been opened.
  bool in_forward() const { return agreed_ ? !in_backward_ : walker_.in_forward(); }
  // Takes part in all that other ranks do in forward; call between forward and backward.
  void rest();
  // Takes part in all that other ranks still do. The pass is over when all reductions are issued.
  void finish();
  // Ends the pass without more work, or early on all ranks.
  void end() {
    agreed_ = false;
    open_.clear();
  }
  // A planned pass whose scopes have all ended is finished first.
  void abandon() {
    if (!agreed_ && open_.empty() && walker_.active() && walker_.next_compute() == nullptr)
      walker_.finish();
    if (walker_.active()) walker_.abandon();
    end();
  }

  // The next three are for a planned pass. Whether the plan lists other scopes next.
  bool excludes(Op op, int unit) const {
    return !agreed_ && walker_.active() && !walker_.may_come(op, unit);
  }
  // Finishes the plan without the program; returns the scopes that the program has open.
  std::vector<OpenScope> leave_plan();
  // Issues the walker's plan without computing: this rank serves other ranks.
  void serve();

  // The next three are for an agreed pass, which may continue a planned pass. As enter(), for a
  // scope that is open already, so that parameters return to the old addresses.
  void reopen(const OpenScope& scope) {
    open(scope.op == Op::forward ? Turn::reopened : Turn::backward, scope);
  }
  // As enter(), for a forward scope that has ended: gathers nothing.
  void note(int unit) { take(Turn::noted, unit); }
  // The forward units so far, of all ranks; empty if this rank is alone.
  const std::vector<int>& order() const { return order_; }

 private:
  enum class Turn : std::uint8_t { noted, reopened, forward, backward };

  void settle();
  void pass_over_next();
  void open(Turn turn, const OpenScope& scope);
  void take(Turn turn, int unit);
  // Agrees on the next turn; returns its word. Smaller words come first.
  std::int64_t advance(std::int64_t wanted);
  void record(Op op, int unit);
  void gather(Op op, int unit);
  void make_room(int unit);
  void reduce(int flat_unit);

  TrainState& train_;
  PlanWalker& walker_;
  HiddenMemory& hidden_;
  GradientUse& gradients_;
  std::vector<OpenScope> open_;
  std::vector<int> forwards_;  // per unit: forward scopes without their backward scope so far
  // Units with outputs come once for each micro batch, and frozen ones may have no backward.
  const bool once_each_;
  bool agreed_ = false;
  // For an agreed pass:
  Terms terms_;
  bool in_backward_ = false;
  std::vector<int> order_;
  std::vector<int> unreduced_;  // per gradient slot: the flat unit whose gradient is there, or -1
  StepPlan exchange_;           // that the walker walks
};

}  // namespace zero::detail
