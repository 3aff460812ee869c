#include "zero/pass/forward_order.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "zero/base/text.h"

namespace zero::detail {

namespace {

// Limits the growth of orders if passes never repeat.
constexpr std::ptrdiff_t longest_order = 8;  // factor on the number of units

void require_all_used(const Model& model, const std::vector<int>& shown) {
  for (int unit = 0; unit < std::ssize(model.units); ++unit) {
    const UnitDeclaration& declaration = model.units[unit];
    if (std::ranges::count(shown, unit) == 0 && !declaration.optional && !declaration.fused)
      throw UsageError("the first pass ended without a forward scope of unit " + declaration.name +
                       "; open it, or declare it UnitSpec::optional()");
  }
}

}  // namespace

void require_nesting(const Model& model, const std::vector<int>& order, int unit) {
  const int parent = model.units[unit].parent;
  if (parent < 0) return;
  if (!order.empty() && (order.back() == parent || model.lies_within(order.back(), parent))) return;
  throw UsageError("forward of unit " + model.units[unit].name + " lies within unit " +
                   model.units[parent].name + ", whose forward scope comes first");
}

const StepPlan& ForwardOrder::learn(const std::vector<int>& shown, bool last) {
  const Model& model = train_.model;
  require_all_used(model, shown);
  std::vector<int> order = used_ = shown;
  insert_missing(model, order);
  learned_ = true;
  if (train_.is_root() && order != model.order) {
    std::vector<std::string> names;
    for (const int unit : order) names.push_back(model.units[unit].name);
    std::fprintf(stderr, "zero: units run in the order of the first pass: %s\n",
                 list_of(names, 12).c_str());
  }
  rest_ = train_.plan.learn_order(std::move(order), used_, last);
  return rest_;
}

void ForwardOrder::adopt(const std::vector<int>& shown) {
  if (shown.empty()) return;
  std::vector<int> used = merged_order(used_, shown), order = used;
  insert_missing(train_.model, order);
  const auto longest = longest_order * std::ssize(train_.model.units);
  if (order == train_.plan.inputs.order || std::ssize(order) > longest ||
      !is_nested(train_.model, order))
    return;
  used_ = std::move(used);
  train_.plan.change_order(std::move(order));
}

}  // namespace zero::detail
