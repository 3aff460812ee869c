#include "zero/plan/plan_checker.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "zero/plan/access_history.h"

namespace zero::detail {

namespace {

// Number of finished instructions of each stream.
using Clock = ByStream<int>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

class PlanChecker {
 public:
  explicit PlanChecker(const PlanInputs& inputs)
      : inputs_(inputs),
        contents_(inputs.parameter_slots.slots, -1),
        uses_of_pass_(inputs.layout->flat_units.size(), 0),
        backward_uses_(inputs.layout->flat_units.size(), 0) {
    for (const ScopeStep& step : backward_steps(inputs))
      if (step.op == Op::backward)
        for (const int flat : inputs.layout->needs_of_unit[step.unit]) ++uses_of_pass_[flat];
  }

  std::string run(const StepPlan& plan) {
    has_scopes_ = std::ranges::any_of(plan.instructions, [](const Instruction& instruction) {
      return target_of(instruction.op) == Target::unit;
    });
    for (const Instruction& instruction : plan.instructions) {
      const PlanStream of = instruction.stream;
      const auto stream = static_cast<std::size_t>(of);
      Clock& clock = clocks_[of];
      for (const ResourceAccess& access : instruction.accesses)
        order_.for_earlier(access, [&](const Clock& earlier) { join(clock, earlier); });
      if (const std::string fault = check_contents(instruction); !fault.empty())
        return plan.name + ": " + fault;
      for (const ResourceAccess& access : accesses_of(inputs_, instruction.op, instruction.target))
        if (const std::string fault = check_access(access, stream); !fault.empty())
          return plan.name + ": " + name(instruction) + " " + fault;
      ++clock[of];
      for (const ResourceAccess& access : instruction.accesses) order_.add(access, of, clock);
    }
    return "";
  }

 private:
  struct History {
    Clock last_write{}, last_read{};
  };

  std::string check_contents(const Instruction& instruction) {
    const int target = instruction.target;
    if (fills_slot(instruction.op)) {
      contents_[inputs_.parameter_slots.slot_of[target]] = target;
    } else if ((instruction.op == Op::reduce || instruction.op == Op::accumulate) && has_scopes_) {
      const int uses = std::exchange(backward_uses_[target], 0);
      if (uses == 0 || uses % uses_of_pass_[target] != 0)
        return name(instruction) + " stands before its last backward use";
    } else if (target_of(instruction.op) == Target::unit) {
      for (const int f : inputs_.layout->needs_of_unit[target]) {
        if (inputs_.policy->parameters_sharded &&
            contents_[inputs_.parameter_slots.slot_of[f]] != f)
          return name(instruction) + " does not find " + inputs_.layout->flat_unit(f).name +
                 " in its slot";
        if (instruction.op == Op::backward) ++backward_uses_[f];
      }
    }
    return "";
  }

  std::string check_access(const ResourceAccess& access, std::size_t stream) {
    const Clock& clock = clocks_[stream];
    History& history = histories_[{access.resource, access.index}];
    bool ordered = true;
    for (std::size_t other = 0; other < clock.size(); ++other)
      if (other != stream)
        ordered = ordered && clock[other] >= history.last_write[other] &&
                  (!access.write || clock[other] >= history.last_read[other]);
    (access.write ? history.last_write : history.last_read)[stream] = clock[stream] + 1;
    if (ordered) return "";
    return std::string("is not ordered after an earlier access to ") + name_of(access.resource) +
           " " + std::to_string(access.index);
  }

  std::string name(const Instruction& instruction) const {
    const std::string& unit =
        target_of(instruction.op) == Target::unit
            ? inputs_.model->units[instruction.target].name
            : inputs_.layout->flat_unit(flat_unit_of(instruction, inputs_.chunks)).name;
    return std::string(name_of(instruction.op)) + " of " + unit;
  }

  const PlanInputs& inputs_;
  std::vector<int> contents_;
  bool has_scopes_ = false;         // of the program, in the current plan
  std::vector<int> uses_of_pass_;   // per flat unit: backward scopes per pass
  std::vector<int> backward_uses_;  // per flat unit, since its last reduction
  ByStream<Clock> clocks_{};
  AccessHistory<Clock> order_;                             // from the declared accesses
  std::map<std::pair<Resource, int>, History> histories_;  // from the actual accesses
};

}  // namespace

std::string find_plan_fault(const PlanInputs& inputs,
                            const std::vector<const StepPlan*>& sequence) {
  PlanChecker checker(inputs);
  for (const StepPlan* plan : sequence)
    if (std::string fault = checker.run(*plan); !fault.empty()) return fault;
  return "";
}

void check_plans(const PlanInputs& inputs, const StepPlans& plans, const HalfPlans* halves) {
  std::vector<std::vector<const StepPlan*>> sequences = {
      {&plans.only, &plans.update, &plans.only, &plans.update},
      {&plans.first, &plans.middle, &plans.late_reductions, &plans.update, &plans.first,
       &plans.late_reductions, &plans.update, &plans.only},
      {&plans.first, &plans.middle, &plans.middle, &plans.last, &plans.update, &plans.first,
       &plans.last, &plans.update, &plans.only},
      {&plans.only, &plans.update, &plans.evaluation_first, &plans.evaluation_next,
       &plans.evaluation_next, &plans.only, &plans.update}};
  if (inputs.policy->rank_independent)
    sequences.push_back({&plans.first, &plans.middle, &plans.without_batch, &plans.update,
                         &plans.first, &plans.without_batch, &plans.update, &plans.first,
                         &plans.last, &plans.update});
  if (halves != nullptr) {
    sequences.push_back({&halves->forward, &halves->backward, &plans.late_reductions, &plans.update,
                         &plans.first, &plans.last, &plans.update});
    sequences.push_back({&halves->forward, &halves->backward, &plans.middle, &plans.last});
  }
  for (const auto& sequence : sequences)
    if (const std::string fault = find_plan_fault(inputs, sequence); !fault.empty())
      throw std::logic_error("step plan: " + fault);
}

}  // namespace zero::detail
