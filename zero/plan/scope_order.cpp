// The order in which the scopes of a pass open and close.
#include <algorithm>
#include <iterator>

#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

// For each place of the forward order the last one that lies within its scope.
std::vector<int> ends_of(const PlanInputs& inputs) {
  const auto count = static_cast<int>(inputs.order.size());
  std::vector<int> ends(inputs.order.size());
  for (int i = 0; i < count; ++i) {
    int end = i;
    while (end + 1 < count && inputs.model->lies_within(inputs.order[end + 1], inputs.order[i]))
      ++end;
    ends[i] = end;
  }
  return ends;
}

bool trains(const PlanInputs& inputs, int unit) {
  const std::vector<int>& flats = inputs.layout->needs_of_unit[unit];
  return std::any_of(flats.begin(), flats.end(), [&](int flat) {
    return inputs.layout->flat_unit(flat).trainable_elements() > 0;
  });
}

class BackwardOrder {
 public:
  explicit BackwardOrder(const PlanInputs& inputs)
      : inputs_(inputs),
        ends_(ends_of(inputs)),
        lowest_(std::distance(inputs.order.begin(),
                              std::find_if(inputs.order.begin(), inputs.order.end(),
                                           [&](int unit) { return trains(inputs, unit); }))) {}

  std::vector<ScopeStep> steps() {
    add(0, static_cast<int>(inputs_.order.size()));
    return std::move(steps_);
  }

 private:
  // What lies within places [begin, end), the last scope first.
  void add(int begin, int end) {
    std::vector<int> outer;
    for (int i = begin; i < end; i = ends_[i] + 1) outer.push_back(i);
    for (auto i = outer.rbegin(); i != outer.rend(); ++i) {
      if (ends_[*i] < lowest_) continue;
      const std::size_t own = steps_.size();
      steps_.push_back({op_at(*i), inputs_.order[*i]});
      add(*i + 1, ends_[*i] + 1);
      steps_[own].end = static_cast<int>(steps_.size()) - 1;
    }
  }

  Op op_at(int place) const {
    const int unit = inputs_.order[place];
    const auto first = std::find(inputs_.order.begin(), inputs_.order.end(), unit);
    const bool last_use = first - inputs_.order.begin() == place;
    return last_use || inputs_.model->units[unit].repeats ? Op::backward : Op::forward;
  }

  const PlanInputs& inputs_;
  const std::vector<int> ends_;
  const std::ptrdiff_t lowest_;  // the first place that trains
  std::vector<ScopeStep> steps_;
};

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
  return BackwardOrder(inputs).steps();
}

}  // namespace zero::detail
