#include "zero/run/order_learner.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "zero/base/text.h"

namespace zero::detail {

namespace {

constexpr std::int64_t nothing_more = std::numeric_limits<std::int64_t>::max();

}  // namespace

void OrderLearner::enter(int unit, std::int64_t scope) {
  train_.runtime.compute().synchronize();  // no kernel still reads a slot
  while (advance(unit) != unit) {
  }
  open_.push_back({unit, scope});
}

std::int64_t OrderLearner::advance(std::int64_t wanted) {
  const std::int64_t next =
      std::ranges::min(train_.ranks.gather_words("the order of units in the first pass", {wanted}));
  if (next == nothing_more) return next;
  const auto unit = static_cast<int>(next);
  require_nesting(unit);
  order_.push_back(unit);
  gather(unit);
  return next;
}

// The order is that of a tree: a unit comes directly behind the one around it, or behind others
// within that.
void OrderLearner::require_nesting(int unit) const {
  const int parent = train_.model.units[unit].parent;
  if (parent < 0) return;
  if (!order_.empty() &&
      (order_.back() == parent || train_.model.lies_within(order_.back(), parent)))
    return;
  throw UsageError("forward of unit " + train_.model.units[unit].name + " lies within unit " +
                   train_.model.units[parent].name + ", whose forward scope comes first");
}

void OrderLearner::gather(int unit) {
  const PlanInputs& inputs = train_.plan.inputs;
  if (!inputs.policy->parameters_sharded) return;
  std::vector<int> missing;
  for (const int flat : train_.layout().needs_of_unit[unit]) {
    int& content = contents_[inputs.parameter_slots.slot_of[flat]];
    if (content == flat) continue;
    for (const Open& open : open_)
      if (train_.layout().needs(open.unit, content))
        throw UsageError("forward of unit " + train_.model.units[unit].name +
                         " needs the slot of unit " + train_.model.units[open.unit].name +
                         ", whose scope is still open; close it first, or declare "
                         "UnitSpec::within() if one runs within the other");
    content = flat;
    missing.push_back(flat);
  }
  gathers_ = make_gather_plan(inputs, missing);
  walker_.begin(gathers_);
  walker_.finish();
  train_.runtime.communication().synchronize();
}

std::vector<int> OrderLearner::finish() {
  train_.runtime.compute().synchronize();
  while (advance(nothing_more) != nothing_more) {
  }
  const Model& model = train_.model;
  for (int unit = 0; unit < std::ssize(model.units); ++unit) {
    if (std::ranges::count(order_, unit) > 0) continue;
    const UnitDeclaration& declaration = model.units[unit];
    if (!declaration.optional && !declaration.fused)
      throw UsageError("the first pass ended without a forward scope of unit " + declaration.name +
                       "; open it, or declare it UnitSpec::optional()");
    insert_unused(unit);
  }
  active_ = false;
  learned_ = true;
  if (train_.rank() != 0 || order_ == model.order) return order_;
  std::vector<std::string> names;
  for (const int unit : order_) names.push_back(model.units[unit].name);
  std::fprintf(stderr, "zero: units run in the order of the first pass: %s\n",
               list_of(names, 12).c_str());
  return order_;
}

// Behind the unit that was declared before it within the same one, else directly behind that one.
void OrderLearner::insert_unused(int unit) {
  const Model& model = train_.model;
  const int parent = model.units[unit].parent;
  int before = unit - 1;
  while (before >= 0 && before != parent && model.units[before].parent != parent)
    before = model.units[before].parent;
  if (before < 0) {
    order_.insert(order_.begin(), unit);
    return;
  }
  auto place = std::find(order_.rbegin(), order_.rend(), before).base();
  if (before != parent)
    while (place != order_.end() && model.lies_within(*place, before)) ++place;
  order_.insert(place, unit);
}

}  // namespace zero::detail
