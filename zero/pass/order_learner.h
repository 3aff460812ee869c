// The first forward pass of a model that learns its order (ModelSpec::learn_order()): the ranks
// agree on each scope, all gather the first of the wanted units, and the units are recorded. Call
// begin(), then enter() and leave() for forward scopes, then finish(), or abandon() on all ranks.
// Belongs to the engine; for the program's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/pass/agreed_scopes.h"

namespace zero::detail {

class OrderLearner {
 public:
  OrderLearner(TrainState& train, PlanWalker& walker)
      : train_(train),
        walker_(walker),
        scopes_(train, walker, "the order of units in the first pass") {}

  // Whether the model's order is still to be learned; and whether the pass that shows the order is
  // running.
  bool waits() const { return train_.model.learns_order && !learned_; }
  bool active() const { return active_; }

  void begin() {
    active_ = true;
    order_.clear();
    walker_.forget_contents();
    scopes_.begin(false);
  }
  // Enters a forward scope. Collective: if ranks open different units, the unit declared first
  // comes first, and all take part in the gather.
  void enter(int unit, std::int64_t scope) {
    scopes_.enter(Op::forward, unit, scope, [this](Op, int next) { add(next); });
  }
  // Returns false if that scope is not open.
  bool leave(std::int64_t scope) noexcept { return scopes_.leave(scope); }
  bool inside_any() const { return scopes_.inside_any(); }
  // Ends this rank's forward scopes. Collective: takes part in the scopes that other ranks still
  // open. Returns the order, with unused units at the declared position. Throws UsageError if these
  // are not optional.
  std::vector<int> finish();
  // The units that the pass used, in order.
  const std::vector<int>& used() const { return used_; }
  // Ends the pass early on all ranks; the next pass shows the order.
  void abandon() noexcept { active_ = false; }

 private:
  void add(int unit);
  void require_nesting(int unit) const;

  TrainState& train_;
  PlanWalker& walker_;
  AgreedScopes scopes_;
  bool active_ = false, learned_ = false;
  std::vector<int> order_, used_;
};

}  // namespace zero::detail
