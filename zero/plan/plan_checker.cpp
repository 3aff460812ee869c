#include "zero/plan/plan_checker.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

namespace {

enum class Resource {
  parameter_slot,
  parameter_shard,  // in memory
  gradient_slot,
  gradient_shard,
  shard_buffer,
  state_slot,
  state,               // of a chunk
  parameters_outside,  // of a chunk, which rest in the file or in host memory
  // Beside a GPU:
  gradient_on_host,
  gradient_staging,
  gradient_in_file,
  shard_staging,
  verdict,
};
constexpr std::array<const char*, 13> names_of_resources = {"parameter slot",
                                                            "parameter shard",
                                                            "gradient slot",
                                                            "gradient shard",
                                                            "shard buffer",
                                                            "state slot",
                                                            "state of chunk",
                                                            "parameters of chunk outside the arena",
                                                            "gradient in host memory",
                                                            "staging of gradients",
                                                            "gradient in the file",
                                                            "staging of shards",
                                                            "verdict"};

struct Access {
  Resource resource;
  int index;
  bool write;
};

// Instructions finished before a point, by stream.
using Clock = std::array<int, plan_stream_count>;
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

  std::vector<Access> accesses_of(const Instruction& instruction) const;
  std::vector<Access> accesses_of_scope(Op op, int unit) const;
  std::vector<Access> accesses_to_all(Op op) const;
  std::vector<Access> accesses_of_update(int chunk) const;
  std::vector<Access> accesses_on_host(const Instruction& instruction) const;
  std::vector<Access> accesses_of_transfer(const Instruction& instruction) const;
  std::vector<Access> accesses_of_load(Op op, int chunk) const;
  std::vector<Access> accesses_of_fetch(Op op, int flat_unit) const;
  std::vector<Access> accesses_of_spill(int flat_unit) const;
  std::vector<Access> accesses_of_download(int flat_unit) const;
  std::vector<Access> accesses_of_upload(int chunk) const;
  int parameter_slot(int flat) const {
    return inputs_.parameter_slots.slot_of[static_cast<std::size_t>(flat)];
  }
  int gradient_slot(int flat) const {
    return inputs_.gradient_slots.slot_of[static_cast<std::size_t>(flat)];
  }
  bool rests_outside(int flat) const { return inputs_.offload.shard_slot(flat) >= 0; }
  int chunk_slot(int chunk) const { return inputs_.chunks[static_cast<std::size_t>(chunk)].slot; }
  std::string check_contents(const Instruction& instruction);
  std::string check_access(const Access& access, std::size_t stream, const Clock& clock);
  std::string name(const Instruction& instruction) const;

  const PlanInputs& inputs_;
  std::vector<int> contents_;
  std::vector<int> backward_uses_;
  std::array<Clock, plan_stream_count> clocks_;
  std::array<int, plan_stream_count> issued_{};
  std::map<EventId, Clock> events_;
  std::map<std::pair<Resource, int>, History> histories_;
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

std::vector<Access> PlanChecker::accesses_of(const Instruction& instruction) const {
  const int flat = flat_unit_of(instruction, inputs_.chunks);
  switch (instruction.op) {
    case Op::forward:
    case Op::backward:
      return accesses_of_scope(instruction.op, instruction.target);
    case Op::agree:
    case Op::measure:
      return accesses_to_all(instruction.op);
    case Op::update:
      return accesses_of_update(instruction.target);
    case Op::gather: {
      const int buffer = inputs_.offload.shard_slot(flat);
      const Access source = buffer >= 0 ? Access{Resource::shard_buffer, buffer, false}
                                        : Access{Resource::parameter_shard, flat, false};
      return {source, {Resource::parameter_slot, parameter_slot(flat), true}};
    }
    case Op::reduce:
    case Op::accumulate: {
      std::vector<Access> accesses = {{Resource::gradient_slot, gradient_slot(flat), true}};
      if (!inputs_.offload.gradients) accesses.push_back({Resource::gradient_shard, flat, true});
      return accesses;
    }
    default:
      return stream_of(instruction.op) == PlanStream::host ? accesses_on_host(instruction)
                                                           : accesses_of_transfer(instruction);
  }
}

std::vector<Access> PlanChecker::accesses_of_transfer(const Instruction& instruction) const {
  const int target = instruction.target, flat = flat_unit_of(instruction, inputs_.chunks);
  std::vector<Access> accesses;
  switch (instruction.op) {
    case Op::load:
    case Op::recall:
      accesses = accesses_of_load(instruction.op, target);
      break;
    case Op::store:
      accesses = {{Resource::state_slot, chunk_slot(target), false},
                  {Resource::state, target, true}};
      if (inputs_.offload.fetches(flat))
        accesses.push_back({Resource::parameters_outside, target, true});
      break;
    case Op::fetch:
    case Op::supply:
      accesses = accesses_of_fetch(instruction.op, flat);
      break;
    case Op::download:
      accesses = accesses_of_download(flat);
      break;
    case Op::spill:
      accesses = accesses_of_spill(flat);
      break;
    case Op::upload:
      accesses = accesses_of_upload(target);
      break;
    default:
      break;
  }
  return accesses;
}

std::vector<Access> PlanChecker::accesses_of_load(Op op, int number) const {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  std::vector<Access> accesses = {{Resource::state_slot, chunk.slot, true}};
  if (op == Op::load) {
    accesses.push_back({Resource::state, number, false});
    if (inputs_.offload.fetches(chunk.flat_unit))
      accesses.push_back({Resource::parameters_outside, number, false});
  }
  if (inputs_.offload.recalls(chunk) && (op == Op::recall || !chunk.ahead))
    accesses.push_back({chunk.on_host ? Resource::gradient_in_file : Resource::gradient_shard,
                        chunk.flat_unit, false});
  return accesses;
}

std::vector<Access> PlanChecker::accesses_of_fetch(Op op, int flat) const {
  const int buffer = inputs_.offload.shard_slot(flat);
  const Access staging{Resource::shard_staging, buffer, op == Op::fetch};
  std::vector<Access> accesses;
  if (op == Op::supply || !inputs_.offload.on_host)
    accesses.push_back({Resource::shard_buffer, buffer, true});
  if (inputs_.offload.on_host && inputs_.offload.fetches(flat)) accesses.push_back(staging);
  if (op == Op::supply && inputs_.offload.fetches(flat)) return accesses;
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
    if (inputs_.chunks[c].flat_unit == flat)
      accesses.push_back({Resource::parameters_outside, static_cast<int>(c), false});
  return accesses;
}

std::vector<Access> PlanChecker::accesses_on_host(const Instruction& instruction) const {
  const int target = instruction.target, flat = flat_unit_of(instruction, inputs_.chunks);
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(target)];
  const OffloadPlan& offload = inputs_.offload;
  std::vector<Access> accesses;
  if (!offload.recalls(chunk)) accesses.push_back({Resource::gradient_on_host, flat, false});
  accesses.push_back({Resource::verdict, 0, false});
  if (!chunk.state_in_file) accesses.push_back({Resource::state, target, true});
  if (chunk.slot >= 0) accesses.push_back({Resource::state_slot, chunk.slot, true});
  if (rests_outside(flat) && !offload.fetches(flat))
    accesses.push_back({Resource::parameters_outside, target, true});
  return accesses;
}

std::vector<Access> PlanChecker::accesses_of_scope(Op op, int unit) const {
  std::vector<Access> accesses;
  for (const int flat : inputs_.layout->needs_of_unit[std::size_t(unit)]) {
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), false});
    if (op == Op::backward && gradient_slot(flat) >= 0)
      accesses.push_back({Resource::gradient_slot, gradient_slot(flat), true});
  }
  return accesses;
}

// Of what looks at all flat units.
std::vector<Access> PlanChecker::accesses_to_all(Op op) const {
  std::vector<Access> accesses;
  if (op == Op::agree) accesses.push_back({Resource::verdict, 0, true});
  for (std::size_t f = 0; f < inputs_.layout->flat_units.size(); ++f) {
    accesses.push_back({Resource::gradient_shard, static_cast<int>(f), false});
    if (op == Op::measure)
      accesses.push_back({Resource::parameter_shard, static_cast<int>(f), false});
  }
  return accesses;
}

// To the file, from where it landed, or from where it passes host memory.
std::vector<Access> PlanChecker::accesses_of_spill(int flat) const {
  if (inputs_.offload.on_host)
    return {{Resource::gradient_staging, gradient_slot(flat), false},
            {Resource::gradient_in_file, flat, true}};
  return {{Resource::gradient_slot, gradient_slot(flat), true},
          {Resource::gradient_shard, flat, true}};
}

std::vector<Access> PlanChecker::accesses_of_download(int flat) const {
  std::vector<Access> accesses = {{Resource::gradient_slot, gradient_slot(flat), false},
                                  {Resource::gradient_shard, flat, inputs_.offload.gradients}};
  for (const Chunk& chunk : inputs_.chunks)
    if (chunk.flat_unit == flat && chunk.on_host) {
      if (inputs_.offload.recalls(chunk))
        accesses.push_back({Resource::gradient_staging, gradient_slot(flat), true});
      else
        accesses.push_back({Resource::gradient_on_host, flat, true});
    }
  return accesses;
}

std::vector<Access> PlanChecker::accesses_of_upload(int number) const {
  const int flat = inputs_.chunks[static_cast<std::size_t>(number)].flat_unit;
  std::vector<Access> accesses = {{Resource::state_slot, chunk_slot(number), false},
                                  {Resource::parameter_shard, flat, true}};
  if (!inputs_.gather_parameters)
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), true});
  return accesses;
}

std::vector<Access> PlanChecker::accesses_of_update(int number) const {
  const Chunk& chunk = inputs_.chunks[static_cast<std::size_t>(number)];
  const int flat = chunk.flat_unit;
  std::vector<Access> accesses;
  if (chunk.slot >= 0) accesses.push_back({Resource::state_slot, chunk.slot, true});
  if (chunk.slot < 0) accesses.push_back({Resource::state, number, true});
  if (!inputs_.offload.recalls(chunk)) accesses.push_back({Resource::gradient_shard, flat, false});
  if (!rests_outside(flat)) accesses.push_back({Resource::parameter_shard, flat, true});
  if (!inputs_.gather_parameters)
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), true});
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
      const int slot = parameter_slot(f);
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
  bool ordered = true;
  for (std::size_t other = 0; other < clock.size(); ++other)
    if (other != stream)
      ordered = ordered && clock[other] >= history.last_write[other] &&
                (!access.write || clock[other] >= history.last_read[other]);
  (access.write ? history.last_write : history.last_read)[stream] = issued_[stream];
  if (ordered) return "";
  return std::string("is not ordered after an earlier access to ") +
         names_of_resources[static_cast<std::size_t>(access.resource)] + " " +
         std::to_string(access.index);
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
