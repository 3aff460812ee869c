// The order in which the scopes of a pass open and close.
#include <algorithm>
#include <functional>
#include <numeric>

#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

// For each place of the forward order the last one that lies within its scope.
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

bool trains(const PlanInputs& inputs, int unit) {
  return std::ranges::any_of(inputs.layout->needs_of_unit[unit], [&](int flat) {
    return inputs.layout->flat_unit(flat).trainable_elements() > 0;
  });
}

}  // namespace

std::vector<ScopeStep> forward_steps(const PlanInputs& inputs, bool training) {
  const std::vector<int> ends = ends_of(inputs);
  std::vector<ScopeStep> steps;
  std::vector<int> step_of(inputs.order.size());  // by place, of the last one so far
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
  const auto lowest =
      place_of(std::ranges::find_if(inputs.order, [&](int unit) { return trains(inputs, unit); }));
  // What ends last in forward opens first; of scopes that end together the outermost.
  std::vector<int> places(inputs.order.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, std::greater(), [&](int place) { return ends[place]; });
  std::erase_if(places, [&](int place) { return ends[place] < lowest; });
  std::vector<ScopeStep> steps;
  for (const int place : places) {
    const int unit = inputs.order[place];
    const bool last_use = place_of(std::ranges::find(inputs.order, unit)) == place;
    const Op op = last_use || inputs.model->units[unit].repeats ? Op::backward : Op::forward;
    // What lies within follows, as far as backward goes.
    const auto end = std::min(steps.size() + ends[place] - place, places.size() - 1);
    steps.push_back({op, unit, static_cast<int>(end)});
  }
  return steps;
}

}  // namespace zero::detail
