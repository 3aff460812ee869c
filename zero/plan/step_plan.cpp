#include "zero/plan/step_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "zero/plan/access_history.h"

namespace zero::detail {

namespace {

struct OpTraits {
  const char* name;
  PlanStream stream;
  Target target;
};

constexpr EnumArray<Op, OpTraits, op_count> traits = {{{
    {"forward", PlanStream::compute, Target::unit},
    {"backward", PlanStream::compute, Target::unit},
    {"agree", PlanStream::compute, Target::all},
    {"measure", PlanStream::compute, Target::all},
    {"update", PlanStream::compute, Target::chunk},
    {"gather", PlanStream::communication, Target::flat_unit},
    {"regather", PlanStream::communication, Target::flat_unit},
    {"reduce", PlanStream::communication, Target::flat_unit},
    {"accumulate", PlanStream::communication, Target::flat_unit},
    {"late reduce", PlanStream::communication, Target::flat_unit},
    {"spread", PlanStream::communication, Target::flat_unit},
    {"fetch", PlanStream::inbound, Target::flat_unit},
    {"load", PlanStream::inbound, Target::chunk},
    {"recall", PlanStream::inbound, Target::chunk},
    {"store", PlanStream::outbound, Target::chunk},
    {"spill", PlanStream::outbound, Target::flat_unit},
    {"download", PlanStream::copies_out, Target::flat_unit},
    {"update on the host", PlanStream::host, Target::chunk},
    {"upload", PlanStream::copies_in, Target::chunk},
    {"supply", PlanStream::copies_in, Target::flat_unit},
    {"receive", PlanStream::communication, Target::boundary},
    {"send", PlanStream::communication, Target::boundary},
    {"receive gradient", PlanStream::communication, Target::boundary},
    {"send gradient", PlanStream::communication, Target::boundary},
    {"add uses", PlanStream::communication, Target::flat_unit},
}}};

}  // namespace

const char* name_of(Op op) {
  return traits[op].name;
}

PlanStream stream_of(Op op) {
  return traits[op].stream;
}

Target target_of(Op op) {
  return traits[op].target;
}

const char* name_of(Resource resource) {
  static constexpr ByResource<const char*> names = {"parameter slot",
                                                    "second copy",
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
                                                    "decision",
                                                    "turn of reads",
                                                    "turn of writes",
                                                    "input of the stage",
                                                    "output of the stage",
                                                    "gradient of the input",
                                                    "gradient of the output"};
  return names[resource];
}

int flat_unit_of(const Instruction& instruction, const std::vector<Chunk>& chunks) {
  return target_of(instruction.op) == Target::chunk ? chunks[instruction.target].flat_unit
                                                    : instruction.target;
}

std::optional<int> saved_part(const ResourceAccess& access, const PlanInputs& inputs) {
  switch (access.resource) {
    case Resource::parameter_shard:
      return access.index;
    case Resource::state:
    case Resource::parameters_outside:
      return inputs.chunks[access.index].flat_unit;
    default:
      return std::nullopt;
  }
}

int PlanInputs::uses_of(int unit, const KeptDeclaration& kept) const {
  const int number = model->run_of(unit);
  const UnitRun run = model->run(number);
  if (kept.name == input_name) return room[number].inputs;
  if (kept.name == output_gradient_name && run.links.after && unit + 1 == run.end)
    return room[number].gradients;
  const auto uses = static_cast<int>(std::ranges::count(model->order, unit));
  return kept.of_backward ? 1 : std::max(room[number].kept, uses);
}

Instruction instruction_of(const PlanInputs& inputs, Op op, int target, int micro_batch) {
  Instruction added{op, target, accesses_of(inputs, op, target, micro_batch)};
  added.micro_batch = micro_batch;
  const bool streamed = target_of(op) == Target::chunk && inputs.chunks[target].streamed;
  if (streamed && op == Op::load) added.stream = PlanStream::copies_in;
  if (streamed && op == Op::update) added.stream = PlanStream::updates;
  if (streamed && op == Op::store) added.stream = PlanStream::copies_out;
  return added;
}

void emit(StepPlan& plan, const PlanInputs& inputs, Op op, int target) {
  plan.instructions.push_back(instruction_of(inputs, op, target));
}

void derive_order(StepPlan& plan) {
  AccessHistory<std::size_t> history;
  for (std::size_t i = 0; i < plan.instructions.size(); ++i) {
    Instruction& instruction = plan.instructions[i];
    const PlanStream stream = instruction.stream;
    std::set<std::size_t> after;
    for (const ResourceAccess& access : instruction.accesses)
      history.for_earlier(access, [&](std::size_t earlier) {
        if (plan.instructions[earlier].stream != stream) after.insert(earlier);
      });
    instruction.after.assign(after.begin(), after.end());
    for (const ResourceAccess& access : instruction.accesses) history.add(access, stream, i);
  }
}

}  // namespace zero::detail
