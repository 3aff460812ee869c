#include "zero/pass/order_learner.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "zero/base/text.h"

namespace zero::detail {

void OrderLearner::add(int unit) {
  require_nesting(unit);
  order_.push_back(unit);
}

// The order is that of a tree: a unit comes directly after the parent, or after an earlier inner
// unit of the parent.
void OrderLearner::require_nesting(int unit) const {
  const int parent = train_.model.units[unit].parent;
  if (parent < 0) return;
  if (!order_.empty() &&
      (order_.back() == parent || train_.model.lies_within(order_.back(), parent)))
    return;
  throw UsageError("forward of unit " + train_.model.units[unit].name + " lies within unit " +
                   train_.model.units[parent].name + ", whose forward scope comes first");
}

std::vector<int> OrderLearner::finish() {
  scopes_.finish([this](Op, int unit) { add(unit); });
  const Model& model = train_.model;
  for (int unit = 0; unit < std::ssize(model.units); ++unit) {
    if (std::ranges::count(order_, unit) > 0) continue;
    const UnitDeclaration& declaration = model.units[unit];
    if (!declaration.optional && !declaration.fused)
      throw UsageError("the first pass ended without a forward scope of unit " + declaration.name +
                       "; open it, or declare it UnitSpec::optional()");
  }
  used_ = order_;
  insert_missing(model, order_);
  active_ = false;
  learned_ = true;
  if (train_.rank() != 0 || order_ == model.order) return order_;
  std::vector<std::string> names;
  for (const int unit : order_) names.push_back(model.units[unit].name);
  std::fprintf(stderr, "zero: units run in the order of the first pass: %s\n",
               list_of(names, 12).c_str());
  return order_;
}

}  // namespace zero::detail
