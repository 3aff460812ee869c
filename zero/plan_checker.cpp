#include "zero/plan_checker.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>

namespace zero::detail {

namespace {

enum class Resource { parameter_slot, parameter_shard, gradient_slot, gradient_shard };

struct Access {
  Resource resource;
  int index;
  bool write;
};

// Instructions finished before a point, by stream.
using Clock = std::array<int, 2>;

Clock joined(const Clock& a, const Clock& b) {
  return {std::max(a[0], b[0]), std::max(a[1], b[1])};
}

class PlanChecker {
 public:
  explicit PlanChecker(const PlanInputs& inputs)
      : inputs_(inputs),
        contents_(static_cast<std::size_t>(inputs.parameter_slots.slots), -1),
        backward_uses_(inputs.layout->flat_units.size(), 0) {}

  std::string run(const StepPlan& plan);

 private:
  struct History {
    Clock last_write{-1, -1};
    Clock last_read{-1, -1};
  };

  std::vector<Access> accesses_of(const Instruction& instruction) const;
  std::string check_contents(const Instruction& instruction);
  std::string check_access(const Access& access, std::size_t stream, const Clock& clock);
  std::string name(const Instruction& instruction) const;
  // Of an instruction on a flat unit or on a chunk of one.
  int flat_unit_of(const Instruction& instruction) const {
    return instruction.op == Op::update
               ? inputs_.chunks[static_cast<std::size_t>(instruction.target)].flat_unit
               : instruction.target;
  }

  const PlanInputs& inputs_;
  std::vector<int> contents_;
  std::vector<int> backward_uses_;
  std::array<Clock, 2> clocks_{Clock{-1, -1}, Clock{-1, -1}};
  std::array<int, 2> issued_{0, 0};
  std::map<EventId, Clock> events_;
  std::map<std::pair<Resource, int>, History> histories_;
};

std::string PlanChecker::name(const Instruction& instruction) const {
  const auto target = static_cast<std::size_t>(instruction.target);
  const bool declared = instruction.op == Op::forward || instruction.op == Op::backward;
  return std::string(name_of(instruction.op)) + " of " +
         (declared ? inputs_.model->units[target].name
                   : inputs_.layout->flat_units[std::size_t(flat_unit_of(instruction))].name);
}

std::vector<Access> PlanChecker::accesses_of(const Instruction& instruction) const {
  std::vector<Access> accesses;
  const int flat = flat_unit_of(instruction);
  const auto slot = [&](int f) { return inputs_.parameter_slots.slot_of[std::size_t(f)]; };
  const auto gradient = [&](int f) { return inputs_.gradient_slots.slot_of[std::size_t(f)]; };
  switch (instruction.op) {
    case Op::forward:
    case Op::backward:
      for (const int f : inputs_.layout->needs_of_unit[std::size_t(instruction.target)]) {
        accesses.push_back({Resource::parameter_slot, slot(f), false});
        if (instruction.op == Op::backward && gradient(f) >= 0)
          accesses.push_back({Resource::gradient_slot, gradient(f), true});
      }
      break;
    case Op::agree:
      for (std::size_t f = 0; f < inputs_.layout->flat_units.size(); ++f)
        accesses.push_back({Resource::gradient_shard, static_cast<int>(f), false});
      break;
    case Op::measure:
      for (std::size_t f = 0; f < inputs_.layout->flat_units.size(); ++f) {
        accesses.push_back({Resource::gradient_shard, static_cast<int>(f), false});
        accesses.push_back({Resource::parameter_shard, static_cast<int>(f), false});
      }
      break;
    case Op::update:
      accesses.push_back({Resource::gradient_shard, flat, false});
      accesses.push_back({Resource::parameter_shard, flat, true});
      if (!inputs_.gather_parameters)
        accesses.push_back({Resource::parameter_slot, slot(flat), true});
      break;
    case Op::gather:
      accesses.push_back({Resource::parameter_shard, flat, false});
      accesses.push_back({Resource::parameter_slot, slot(flat), true});
      break;
    case Op::reduce:
    case Op::accumulate:
      accesses.push_back({Resource::gradient_slot, gradient(flat), true});
      accesses.push_back({Resource::gradient_shard, flat, true});
      break;
  }
  return accesses;
}

std::string PlanChecker::check_contents(const Instruction& instruction) {
  const auto target = static_cast<std::size_t>(instruction.target);
  if (instruction.op == Op::gather) {
    const int slot = inputs_.parameter_slots.slot_of[target];
    contents_[static_cast<std::size_t>(slot)] = instruction.target;
  } else if (instruction.op == Op::reduce || instruction.op == Op::accumulate) {
    const auto users = static_cast<int>(inputs_.layout->flat_units[target].users.size());
    if (backward_uses_[target] % users != 0)
      return name(instruction) + " stands before its last backward use";
  } else if (instruction.op == Op::forward || instruction.op == Op::backward) {
    for (const int f : inputs_.layout->needs_of_unit[target]) {
      const int slot = inputs_.parameter_slots.slot_of[static_cast<std::size_t>(f)];
      if (inputs_.gather_parameters && contents_[static_cast<std::size_t>(slot)] != f)
        return name(instruction) + " does not find " +
               inputs_.layout->flat_units[static_cast<std::size_t>(f)].name + " in its slot";
      if (instruction.op == Op::backward) ++backward_uses_[static_cast<std::size_t>(f)];
    }
  }
  return "";
}

std::string PlanChecker::check_access(const Access& access, std::size_t stream,
                                      const Clock& clock) {
  History& history = histories_[{access.resource, access.index}];
  const std::size_t other = 1 - stream;
  const bool after_writes = clock[other] >= history.last_write[other];
  const bool after_reads = !access.write || clock[other] >= history.last_read[other];
  (access.write ? history.last_write : history.last_read)[stream] = issued_[stream];
  if (after_writes && after_reads) return "";
  static constexpr std::array<const char*, 4> names = {"parameter slot", "parameter shard",
                                                       "gradient slot", "gradient shard"};
  return std::string("is not ordered after an earlier access to ") +
         names[static_cast<std::size_t>(access.resource)] + " " + std::to_string(access.index);
}

std::string PlanChecker::run(const StepPlan& plan) {
  for (const Instruction& instruction : plan.instructions) {
    const auto stream = static_cast<std::size_t>(stream_of(instruction.op));
    Clock& clock = clocks_[stream];
    for (const Wait& wait : instruction.waits) {
      const auto found = events_.find(wait.event);
      if (found != events_.end()) clock = joined(clock, found->second);
    }
    if (const std::string fault = check_contents(instruction); !fault.empty())
      return plan.name + ": " + fault;
    for (const Access& access : accesses_of(instruction))
      if (const std::string fault = check_access(access, stream, clock); !fault.empty())
        return plan.name + ": " + name(instruction) + " " + fault;
    clock[stream] = issued_[stream]++;
    for (const EventId& event : instruction.signals) events_[event] = clock;
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
