// The first forward pass of a model that learns its order (ModelSpec::learn_order()): each scope is
// announced to the other ranks, which gather what comes first for any of them, and the units are
// noted. Owned by the engine; the program's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/run/agreed_scopes.h"

namespace zero::detail {

class OrderLearner {
 public:
  OrderLearner(TrainState& train, PlanWalker& walker)
      : train_(train),
        walker_(walker),
        scopes_(train, walker, "the order of units in the first pass") {}

  // Whether the model's order is still to be learned; and whether a pass is under way that shows
  // it.
  bool waits() const { return train_.model.learns_order && !learned_; }
  bool active() const { return active_; }

  void begin() {
    active_ = true;
    order_.clear();
    walker_.forget_contents();
    scopes_.begin(false);
  }
  // Of a forward scope. Collective: where other ranks open other units, the one that was declared
  // first comes first, and this rank takes part in its gather.
  void enter(int unit, std::int64_t scope) {
    scopes_.enter(Op::forward, unit, scope, [this](Op, int next) { add(next); });
  }
  // False where that scope is not open.
  bool leave(std::int64_t scope) noexcept { return scopes_.leave(scope); }
  bool inside_any() const { return scopes_.inside_any(); }
  // This rank opens no more forward scopes. Collective: takes part in what others still open.
  // Returns the order, in which units that nobody opened stand where they were declared. Throws
  // UsageError where these are not optional.
  std::vector<int> finish();
  // What that pass used, in its order.
  const std::vector<int>& used() const { return used_; }
  // The pass ends early on all ranks; the next one shows the order.
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
