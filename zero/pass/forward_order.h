// The forward order of a model that learns its order from passes: from the first pass
// (ModelSpec::learn_order()), and from passes that have left the plan (ModelSpec::any_order()).
// All ranks see the same passes. Belongs to Passes; for the program's thread.
#pragma once

#include <vector>

#include "zero/state/train_state.h"

namespace zero::detail {

// Throws UsageError unless the unit may come next after `order`, as in a tree: directly after the
// parent, or after an earlier inner unit of the parent.
void require_nesting(const Model& model, const std::vector<int>& order, int unit);

class ForwardOrder {
 public:
  explicit ForwardOrder(TrainState& train) : train_(train) {}

  // Whether the order is still to be learned.
  bool waits() const { return train_.model.learns_order && !learned_; }
  // Learns the order from the forward units of the first pass, and remakes all plans; unused units
  // take the declared position. Returns the plan of the rest of the micro step, which may also be
  // the `last` of its step. Throws UsageError if an unused unit is not optional.
  const StepPlan& learn(const std::vector<int>& shown, bool last);
  // Merges the order of a pass that has left the plan into the order of later passes, if it has
  // shown any.
  void adopt(const std::vector<int>& shown);
  // Whether passes have used all units of the order.
  bool used_all() const { return used_ == train_.plan.inputs.order; }

 private:
  TrainState& train_;
  bool learned_ = false;
  std::vector<int> used_;  // as shown by passes, without unused units
  StepPlan rest_;
};

}  // namespace zero::detail
