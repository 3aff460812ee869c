// The order of the opening and closing of a pass's scopes.
#include <algorithm>
#include <functional>
#include <numeric>

#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

// For each position of the forward order, the last position within that scope.
std::vector<int> ends_of(const PlanInputs& inputs) {
  std::vector<int> ends;
  for (auto place = inputs.order.begin(); place != inputs.order.end(); ++place) {
    const auto outside = std::find_if_not(place + 1, inputs.order.end(), [&](int unit) {
      return inputs.model->lies_within(unit, *place);
    });
    ends.push_back(static_cast<int>(outside - inputs.order.begin()) - 1);
  }
  return ends;
}

// Asks the declaration, not the layout, in which units may share memory: persistent parameters of
// stage 3 are in one flat unit. So backward ends at the same unit at every stage.
bool trains(const Model& model, int unit) {
  const UnitDeclaration& own = model.units[unit];
  const auto is_trained = [&](int param) {
    return model.params[param].options.trainable && model.params[param].elements > 0;
  };
  return std::ranges::any_of(own.params, is_trained) ||
         std::ranges::any_of(own.borrowed_names,
                             [&](const std::string& name) { return is_trained(model.find(name)); });
}

}  // namespace

std::vector<ScopeStep> forward_steps(const PlanInputs& inputs, bool training) {
  const std::vector<int> ends = ends_of(inputs);
  std::vector<ScopeStep> steps;
  std::vector<int> step_of(inputs.order.size());  // last step so far of each position
  for (std::size_t i = 0; i < inputs.order.size(); ++i) {
    if (!training || !inputs.model->units[inputs.order[i]].fused)
      steps.push_back({Op::forward, inputs.order[i], ends[i]});
    step_of[i] = static_cast<int>(steps.size()) - 1;
  }
  for (ScopeStep& step : steps) step.end = step_of[step.end];
  return steps;
}

std::vector<ScopeStep> backward_steps(const PlanInputs& inputs) {
  const std::vector<int> ends = ends_of(inputs);
  const auto place_of = [&](const auto& found) { return found - inputs.order.begin(); };
  const auto lowest = place_of(std::ranges::find_if(inputs.order, [&](int unit) {
    const bool passes_on = inputs.model->run(inputs.model->run_of(unit)).links.gradient_before;
    return passes_on || trains(*inputs.model, unit);
  }));
  // Scopes that end last in forward open first; of scopes that end together, the outermost first.
  std::vector<int> places(inputs.order.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, std::greater(), [&](int place) { return ends[place]; });
  std::erase_if(places, [&](int place) { return ends[place] < lowest; });
  std::vector<ScopeStep> steps;
  for (const int place : places) {
    const int unit = inputs.order[place];
    const bool last_use = place_of(std::ranges::find(inputs.order, unit)) == place;
    const Op op = last_use || inputs.model->units[unit].repeats ? Op::backward : Op::forward;
    // Inner scopes follow, as far as backward goes.
    const auto end = std::min(steps.size() + ends[place] - place, places.size() - 1);
    steps.push_back({op, unit, static_cast<int>(end)});
  }
  return steps;
}

void insert_missing(const Model& model, std::vector<int>& order) {
  for (int unit = 0; unit < std::ssize(model.units); ++unit) {
    if (std::ranges::count(order, unit) > 0) continue;
    const int parent = model.units[unit].parent;
    int before = unit - 1;
    while (before >= 0 && before != parent && model.units[before].parent != parent)
      before = model.units[before].parent;
    if (before < 0) {
      order.insert(order.begin(), unit);
      continue;
    }
    auto place = std::find(order.rbegin(), order.rend(), before).base();
    if (before != parent)
      while (place != order.end() && model.lies_within(*place, before)) ++place;
    order.insert(place, unit);
  }
}

bool is_nested(const Model& model, const std::vector<int>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int parent = model.units[order[i]].parent;
    if (parent < 0) continue;
    if (i == 0 || (order[i - 1] != parent && !model.lies_within(order[i - 1], parent)))
      return false;
  }
  return true;
}

std::vector<int> merged_order(const std::vector<int>& a, const std::vector<int>& b) {
  const std::size_t rows = a.size() + 1, columns = b.size() + 1;
  // The length of the longest common subsequence of a from position i on and b from position j on.
  std::vector<int> common(rows * columns, 0);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return common[i * columns + j]; };
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      at(i, j) = a[i] == b[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  std::vector<int> merged;
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (a[i] == b[j])
      merged.push_back(a[i]), ++i, ++j;
    else if (at(i + 1, j) >= at(i, j + 1))
      merged.push_back(a[i++]);
    else
      merged.push_back(b[j++]);
  }
  merged.insert(merged.end(), a.begin() + i, a.end());
  merged.insert(merged.end(), b.begin() + j, b.end());
  return merged;
}

}  // namespace zero::detail
