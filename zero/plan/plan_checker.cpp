#include "zero/plan/plan_checker.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <utility>

#include "zero/plan/access_history.h"

namespace zero::detail {

namespace {

// Instructions finished before a point, by stream.
using Clock = ByStream<int>;
constexpr Clock nothing_finished = {-1, -1, -1, -1, -1, -1, -1};
static_assert(nothing_finished.back() == -1);

Clock joined(const Clock& a, const Clock& b) {
  Clock result = a;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = std::max(a[i], b[i]);
  return result;
}

class PlanChecker {
 public:
  explicit PlanChecker(const PlanInputs& inputs)
      : inputs_(inputs),
        contents_(static_cast<std::size_t>(inputs.parameter_slots.slots), -1),
        backward_uses_(inputs.layout->flat_units.size(), 0) {
    clocks_.fill(nothing_finished);
  }

  std::string run(const StepPlan& plan);

 private:
  struct History {
    Clock last_write = nothing_finished;
    Clock last_read = nothing_finished;
  };

  int parameter_slot(int flat) const { return inputs_.parameter_slots.slot_of[flat]; }
  std::string check_contents(const Instruction& instruction);
  std::string check_access(const ResourceAccess& access, std::size_t stream, const Clock& clock);
  std::string name(const Instruction& instruction) const;

  const PlanInputs& inputs_;
  std::vector<int> contents_;
  std::vector<int> backward_uses_;  // by flat unit, since its last reduction
  ByStream<Clock> clocks_;
  ByStream<int> issued_{};
  AccessHistory<Clock> order_;  // by what instructions say that they access
  std::map<std::pair<Resource, int>, History> histories_;  // of what they access
};

std::string PlanChecker::name(const Instruction& instruction) const {
  const auto target = static_cast<std::size_t>(instruction.target);
  const bool declared = instruction.op == Op::forward || instruction.op == Op::backward;
  return std::string(name_of(instruction.op)) + " of " +
         (declared
              ? inputs_.model->units[target].name
              : inputs_.layout->flat_units[std::size_t(flat_unit_of(instruction, inputs_.chunks))]
                    .name);
}

std::string PlanChecker::check_contents(const Instruction& instruction) {
  const auto target = static_cast<std::size_t>(instruction.target);
  if (instruction.op == Op::gather) {
    const int slot = inputs_.parameter_slots.slot_of[target];
    contents_[slot] = instruction.target;
  } else if (instruction.op == Op::reduce || instruction.op == Op::accumulate) {
    const auto users = static_cast<int>(inputs_.layout->flat_units[target].users.size());
    const int uses = std::exchange(backward_uses_[target], 0);
    if (uses == 0 || uses % users != 0)
      return name(instruction) + " stands before its last backward use";
  } else if (instruction.op == Op::forward || instruction.op == Op::backward) {
    for (const int f : inputs_.layout->needs_of_unit[target]) {
      const int slot = parameter_slot(f);
      if (inputs_.gather_parameters && contents_[slot] != f)
        return name(instruction) + " does not find " + inputs_.layout->flat_units[f].name +
               " in its slot";
      if (instruction.op == Op::backward) ++backward_uses_[f];
    }
  }
  return "";
}

std::string PlanChecker::check_access(const ResourceAccess& access, std::size_t stream,
                                      const Clock& clock) {
  History& history = histories_[{access.resource, access.index}];
  bool ordered = true;
  for (std::size_t other = 0; other < clock.size(); ++other)
    if (other != stream)
      ordered = ordered && clock[other] >= history.last_write[other] &&
                (!access.write || clock[other] >= history.last_read[other]);
  (access.write ? history.last_write : history.last_read)[stream] = issued_[stream];
  if (ordered) return "";
  return std::string("is not ordered after an earlier access to ") + name_of(access.resource) +
         " " + std::to_string(access.index);
}

std::string PlanChecker::run(const StepPlan& plan) {
  for (const Instruction& instruction : plan.instructions) {
    const PlanStream of = stream_of(instruction.op);
    const auto stream = static_cast<std::size_t>(of);
    Clock& clock = clocks_[stream];
    for (const ResourceAccess& access : instruction.accesses)
      order_.for_earlier(access, [&](const Clock& earlier) { clock = joined(clock, earlier); });
    if (const std::string fault = check_contents(instruction); !fault.empty())
      return plan.name + ": " + fault;
    for (const ResourceAccess& access : accesses_of(inputs_, instruction.op, instruction.target))
      if (const std::string fault = check_access(access, stream, clock); !fault.empty())
        return plan.name + ": " + name(instruction) + " " + fault;
    clock[stream] = issued_[stream]++;
    for (const ResourceAccess& access : instruction.accesses) order_.add(access, of, clock);
  }
  return "";
}

}  // namespace

std::string find_plan_fault(const PlanInputs& inputs,
                            const std::vector<const StepPlan*>& sequence) {
  PlanChecker checker(inputs);
  for (const StepPlan* plan : sequence)
    if (std::string fault = checker.run(*plan); !fault.empty()) return fault;
  return "";
}

void check_plans(const PlanInputs& inputs, const StepPlans& plans) {
  const std::vector<std::vector<const StepPlan*>> sequences = {
      {&plans.only, &plans.update, &plans.only, &plans.update},
      {&plans.first, &plans.middle, &plans.middle, &plans.last, &plans.update, &plans.first,
       &plans.last, &plans.update, &plans.only},
      {&plans.only, &plans.update, &plans.evaluation_first, &plans.evaluation_next,
       &plans.evaluation_next, &plans.only, &plans.update}};
  for (const auto& sequence : sequences)
    if (const std::string fault = find_plan_fault(inputs, sequence); !fault.empty())
      throw std::logic_error("step plan: " + fault);
}

}  // namespace zero::detail
