// The first forward pass of a model that learns its order (ModelSpec::learn_order()): each scope is
// announced to the other ranks, which gather what comes first for any of them, and the units are
// noted. Owned by the engine; the program's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/run/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class OrderLearner {
 public:
  OrderLearner(TrainState& train, PlanWalker& walker) : train_(train), walker_(walker) {}

  // Whether the model's order is still to be learned; and whether a pass is under way that shows
  // it.
  bool waits() const { return train_.model.learns_order && !learned_; }
  bool active() const { return active_; }

  void begin() {
    active_ = true;
    order_.clear();
    open_.clear();
    contents_.assign(train_.plan.inputs.parameter_slots.slots, -1);
  }
  // Of a forward scope. Collective: where other ranks open other units, the one that was declared
  // first comes first, and this rank takes part in its gather.
  void enter(int unit, std::int64_t scope);
  // False where that scope is not open.
  bool leave(std::int64_t scope) noexcept {
    return std::erase_if(open_, [&](const Open& open) { return open.scope == scope; }) > 0;
  }
  // This rank opens no more forward scopes. Collective: takes part in what others still open.
  // Returns the order, in which units that nobody opened stand where they were declared. Throws
  // UsageError where these are not optional.
  std::vector<int> finish();
  // The pass ends early on all ranks; the next one shows the order.
  void abandon() noexcept { active_ = false; }

 private:
  // Agrees on the unit that comes next; returns it.
  std::int64_t advance(std::int64_t wanted);
  void gather(int unit);
  void require_nesting(int unit) const;
  void insert_unused(int unit);

  TrainState& train_;
  PlanWalker& walker_;
  bool active_ = false, learned_ = false;
  std::vector<int> order_;
  std::vector<int> contents_;  // of the parameter slots: flat units, or -1
  struct Open {
    int unit;
    std::int64_t scope;
  };
  std::vector<Open> open_;
  StepPlan gathers_;  // of the scope that opens
};

}  // namespace zero::detail
