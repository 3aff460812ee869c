#include "zero/plan/plan_checker.h"

#include <set>
#include <stdexcept>
#include <utility>

namespace zero::detail {

namespace {

class ContentsChecker {
 public:
  explicit ContentsChecker(const PlanInputs& inputs)
      : inputs_(inputs),
        contents_(inputs.parameter_slots.slots, -1),
        uses_of_pass_(inputs.layout->flat_units.size(), 0),
        backward_uses_(inputs.layout->flat_units.size(), 0) {
    for (const ScopeStep& step : backward_steps(inputs))
      if (step.op == Op::backward)
        for (const int flat : inputs.layout->needs_of_unit[step.unit]) ++uses_of_pass_[flat];
  }

  std::string run(const StepPlan& plan) {
    own_.clear();
    for (const Instruction& instruction : plan.instructions)
      if (target_of(instruction.op) == Target::unit) own_.insert(instruction.micro_batch);
    for (const Instruction& instruction : plan.instructions)
      if (const std::string fault = check(instruction); !fault.empty())
        return plan.name + ": " + fault;
    return "";
  }

 private:
  std::string check(const Instruction& instruction) {
    const int target = instruction.target;
    if (fills_slot(instruction.op)) {
      contents_[inputs_.parameter_slots.slot_of[target]] = target;
    } else if ((instruction.op == Op::reduce || instruction.op == Op::accumulate) &&
               own_.contains(instruction.micro_batch)) {
      const int uses = std::exchange(backward_uses_[target], 0);
      if (uses == 0 || uses % uses_of_pass_[target] != 0)
        return name(instruction) + " comes before its last backward use";
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

  std::string name(const Instruction& instruction) const {
    const std::string& unit =
        target_of(instruction.op) == Target::unit
            ? inputs_.model->units[instruction.target].name
            : inputs_.layout->flat_unit(flat_unit_of(instruction, inputs_.chunks)).name;
    return std::string(name_of(instruction.op)) + " of " + unit;
  }

  const PlanInputs& inputs_;
  std::vector<int> contents_;
  std::set<int> own_;               // micro batches of which the current plan has scopes
  std::vector<int> uses_of_pass_;   // per flat unit: backward scopes per pass
  std::vector<int> backward_uses_;  // per flat unit, since its last reduction
};

// Returns the instruction of a repeated micro step that would add gradients to those of the step,
// or "".
std::string find_sum(const StepPlan& repeated) {
  for (const Instruction& instruction : repeated.instructions)
    if (target_of(instruction.op) != Target::unit && !fills_slot(instruction.op) &&
        instruction.op != Op::fetch && instruction.op != Op::supply)
      return repeated.name + ": " + name_of(instruction.op) + " in it changes the step";
  return "";
}

}  // namespace

std::string find_plan_fault(const PlanInputs& inputs,
                            const std::vector<const StepPlan*>& sequence) {
  ContentsChecker checker(inputs);
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
  if (inputs.policy->rank_independent())
    sequences.push_back({&plans.first, &plans.middle, &plans.without_batch, &plans.update,
                         &plans.first, &plans.without_batch, &plans.update, &plans.first,
                         &plans.last, &plans.update});
  if (!plans.tasks.instructions.empty())
    sequences.push_back({&plans.tasks, &plans.update, &plans.evaluation_first,
                         &plans.evaluation_next, &plans.tasks, &plans.update});
  if (inputs.repeats_batches)
    for (const StepPlan* last : {&plans.only, &plans.last, &plans.without_batch})
      sequences.push_back({&plans.first, last, &plans.repeated, &plans.repeated, &plans.update,
                           &plans.only, &plans.repeated, &plans.update});
  if (halves != nullptr) {
    sequences.push_back({&halves->forward, &halves->backward, &plans.late_reductions, &plans.update,
                         &plans.first, &plans.last, &plans.update});
    sequences.push_back({&halves->forward, &halves->backward,
                         halves->complete ? &plans.middle : &plans.first, &plans.last});
    if (inputs.policy->rank_independent())
      sequences.push_back({&halves->forward, &halves->backward,
                           halves->complete ? &plans.without_batch : &plans.only_without_batch,
                           &plans.update});
  }
  if (const std::string fault = find_sum(plans.repeated); !fault.empty())
    throw std::logic_error("step plan: " + fault);
  for (const auto& sequence : sequences)
    if (const std::string fault = find_plan_fault(inputs, sequence); !fault.empty())
      throw std::logic_error("step plan: " + fault);
}

}  // namespace zero::detail
