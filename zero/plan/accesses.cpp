#include "zero/plan/accesses.h"

#include <array>

namespace zero::detail {

namespace {

class AccessTable {
 public:
  explicit AccessTable(const PlanInputs& inputs) : inputs_(inputs) {}

  std::vector<ResourceAccess> of(const Instruction& instruction) const;

 private:
  std::vector<ResourceAccess> of_scope(Op op, int unit) const;
  std::vector<ResourceAccess> to_all(Op op) const;
  std::vector<ResourceAccess> of_update(int chunk) const;
  std::vector<ResourceAccess> on_host(const Instruction& instruction) const;
  std::vector<ResourceAccess> of_transfer(const Instruction& instruction) const;
  std::vector<ResourceAccess> of_load(Op op, int chunk) const;
  std::vector<ResourceAccess> of_fetch(Op op, int flat_unit) const;
  std::vector<ResourceAccess> of_spill(int flat_unit) const;
  std::vector<ResourceAccess> of_download(int flat_unit) const;
  std::vector<ResourceAccess> of_upload(int chunk) const;
  void take_turns(const Chunk& chunk, std::vector<ResourceAccess>& accesses) const;
  int parameter_slot(int flat) const { return inputs_.parameter_slots.slot_of[flat]; }
  int gradient_slot(int flat) const { return inputs_.gradient_slots.slot_of[flat]; }
  bool rests_outside(int flat) const { return inputs_.offload.shard_slot(flat) >= 0; }
  int chunk_slot(int chunk) const { return inputs_.chunks[chunk].slot; }

  const PlanInputs& inputs_;
};

std::vector<ResourceAccess> AccessTable::of(const Instruction& instruction) const {
  const int flat = flat_unit_of(instruction, inputs_.chunks);
  switch (instruction.op) {
    case Op::forward:
    case Op::backward:
      return of_scope(instruction.op, instruction.target);
    case Op::agree:
    case Op::measure:
      return to_all(instruction.op);
    case Op::update:
      return of_update(instruction.target);
    case Op::gather: {
      const int buffer = inputs_.offload.shard_slot(flat);
      const ResourceAccess source = buffer >= 0
                                        ? ResourceAccess{Resource::shard_buffer, buffer, false}
                                        : ResourceAccess{Resource::parameter_shard, flat, false};
      return {source, {Resource::parameter_slot, parameter_slot(flat), true}};
    }
    case Op::reduce:
    case Op::accumulate: {
      std::vector<ResourceAccess> accesses = {{Resource::gradient_slot, gradient_slot(flat), true}};
      if (!inputs_.offload.gradients) accesses.push_back({Resource::gradient_shard, flat, true});
      return accesses;
    }
    default:
      return stream_of(instruction.op) == PlanStream::host ? on_host(instruction)
                                                           : of_transfer(instruction);
  }
}

std::vector<ResourceAccess> AccessTable::of_transfer(const Instruction& instruction) const {
  const int target = instruction.target, flat = flat_unit_of(instruction, inputs_.chunks);
  std::vector<ResourceAccess> accesses;
  switch (instruction.op) {
    case Op::load:
    case Op::recall:
      accesses = of_load(instruction.op, target);
      break;
    case Op::store:
      accesses = {{Resource::state_slot, chunk_slot(target), false},
                  {Resource::state, target, true}};
      if (inputs_.offload.fetches(flat))
        accesses.push_back({Resource::parameters_outside, target, true});
      if (!inputs_.offload.pipeline_write) accesses.push_back({Resource::writes_in_turn, 0, true});
      break;
    case Op::fetch:
    case Op::supply:
      accesses = of_fetch(instruction.op, flat);
      break;
    case Op::download:
      accesses = of_download(flat);
      break;
    case Op::spill:
      accesses = of_spill(flat);
      break;
    case Op::upload:
      accesses = of_upload(target);
      break;
    default:
      break;
  }
  return accesses;
}

std::vector<ResourceAccess> AccessTable::of_load(Op op, int number) const {
  const Chunk& chunk = inputs_.chunks[number];
  std::vector<ResourceAccess> accesses = {{Resource::state_slot, chunk.slot, true}};
  if (op == Op::load) {
    accesses.push_back({Resource::state, number, false});
    if (inputs_.offload.fetches(chunk.flat_unit))
      accesses.push_back({Resource::parameters_outside, number, false});
    if (!inputs_.offload.pipeline_read) accesses.push_back({Resource::reads_in_turn, 0, true});
    if (!inputs_.offload.pipeline_read && !inputs_.offload.pipeline_write)
      accesses.push_back({Resource::writes_in_turn, 0, true});
  }
  const OffloadPlan& offload = inputs_.offload;
  if (offload.recalls(chunk) && (op == Op::recall || !chunk.ahead))
    accesses.push_back({chunk.on_host ? Resource::gradient_in_file : Resource::gradient_shard,
                        chunk.flat_unit, false});
  return accesses;
}

std::vector<ResourceAccess> AccessTable::of_fetch(Op op, int flat) const {
  const int buffer = inputs_.offload.shard_slot(flat);
  const ResourceAccess staging{Resource::shard_staging, buffer, op == Op::fetch};
  std::vector<ResourceAccess> accesses;
  if (op == Op::supply || !inputs_.offload.on_host)
    accesses.push_back({Resource::shard_buffer, buffer, true});
  if (inputs_.offload.on_host && inputs_.offload.fetches(flat)) accesses.push_back(staging);
  if (op == Op::supply && inputs_.offload.fetches(flat)) return accesses;
  for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
    if (inputs_.chunks[c].flat_unit == flat)
      accesses.push_back({Resource::parameters_outside, static_cast<int>(c), false});
  return accesses;
}

std::vector<ResourceAccess> AccessTable::on_host(const Instruction& instruction) const {
  const int target = instruction.target, flat = flat_unit_of(instruction, inputs_.chunks);
  const Chunk& chunk = inputs_.chunks[target];
  const OffloadPlan& offload = inputs_.offload;
  std::vector<ResourceAccess> accesses;
  if (!offload.recalls(chunk)) accesses.push_back({Resource::gradient_on_host, flat, false});
  accesses.push_back({Resource::verdict, 0, false});
  if (!chunk.state_in_file) accesses.push_back({Resource::state, target, true});
  if (chunk.slot >= 0) accesses.push_back({Resource::state_slot, chunk.slot, true});
  if (rests_outside(flat) && !offload.fetches(flat))
    accesses.push_back({Resource::parameters_outside, target, true});
  take_turns(chunk, accesses);
  return accesses;
}

// Of updates between a read and a write that do not overlap others.
void AccessTable::take_turns(const Chunk& chunk, std::vector<ResourceAccess>& accesses) const {
  const OffloadPlan& offload = inputs_.offload;
  if (!offload.passes_file(chunk)) return;
  if (!offload.pipeline_read) accesses.push_back({Resource::reads_in_turn, 0, true});
  if (!offload.pipeline_write) accesses.push_back({Resource::writes_in_turn, 0, true});
}

std::vector<ResourceAccess> AccessTable::of_scope(Op op, int unit) const {
  std::vector<ResourceAccess> accesses;
  for (const int flat : inputs_.layout->needs_of_unit[unit]) {
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), false});
    if (op == Op::backward && gradient_slot(flat) >= 0)
      accesses.push_back({Resource::gradient_slot, gradient_slot(flat), true});
  }
  return accesses;
}

// Of what looks at all flat units. Between the ranks' agreement and the update the program may edit
// gradients (StepOptions::inspect), but for those of GPU ranks.
std::vector<ResourceAccess> AccessTable::to_all(Op op) const {
  std::vector<ResourceAccess> accesses;
  const bool edits = op == Op::agree && !inputs_.offload.on_host;
  if (op == Op::agree) accesses.push_back({Resource::verdict, 0, true});
  for (std::size_t f = 0; f < inputs_.layout->flat_units.size(); ++f) {
    accesses.push_back({Resource::gradient_shard, static_cast<int>(f), edits});
    if (op == Op::measure)
      accesses.push_back({Resource::parameter_shard, static_cast<int>(f), false});
  }
  return accesses;
}

// To the file, from where it landed, or from where it passes host memory.
std::vector<ResourceAccess> AccessTable::of_spill(int flat) const {
  if (inputs_.offload.on_host)
    return {{Resource::gradient_staging, gradient_slot(flat), false},
            {Resource::gradient_in_file, flat, true}};
  return {{Resource::gradient_slot, gradient_slot(flat), true},
          {Resource::gradient_shard, flat, true}};
}

std::vector<ResourceAccess> AccessTable::of_download(int flat) const {
  const bool landed = inputs_.offload.gradients;  // in the slot; what stays goes to its place
  std::vector<ResourceAccess> accesses = {{Resource::gradient_shard, flat, landed}};
  if (landed) accesses.push_back({Resource::gradient_slot, gradient_slot(flat), false});
  for (const Chunk& chunk : inputs_.chunks)
    if (chunk.flat_unit == flat && chunk.on_host) {
      if (inputs_.offload.recalls(chunk))
        accesses.push_back({Resource::gradient_staging, gradient_slot(flat), true});
      else
        accesses.push_back({Resource::gradient_on_host, flat, true});
    }
  return accesses;
}

std::vector<ResourceAccess> AccessTable::of_upload(int number) const {
  const int flat = inputs_.chunks[number].flat_unit;
  std::vector<ResourceAccess> accesses = {{Resource::state_slot, chunk_slot(number), false},
                                          {Resource::parameter_shard, flat, true}};
  if (!inputs_.gather_parameters)
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), true});
  return accesses;
}

std::vector<ResourceAccess> AccessTable::of_update(int number) const {
  const Chunk& chunk = inputs_.chunks[number];
  const int flat = chunk.flat_unit;
  std::vector<ResourceAccess> accesses;
  if (chunk.slot >= 0) accesses.push_back({Resource::state_slot, chunk.slot, true});
  if (chunk.slot < 0) accesses.push_back({Resource::state, number, true});
  if (!inputs_.offload.recalls(chunk)) accesses.push_back({Resource::gradient_shard, flat, false});
  if (!rests_outside(flat)) accesses.push_back({Resource::parameter_shard, flat, true});
  if (!inputs_.gather_parameters)
    accesses.push_back({Resource::parameter_slot, parameter_slot(flat), true});
  take_turns(chunk, accesses);
  return accesses;
}

}  // namespace

std::vector<ResourceAccess> accesses_of(const PlanInputs& inputs, Op op, int target) {
  return AccessTable(inputs).of({op, target, {}, {}});
}

const char* name_of(Resource resource) {
  static constexpr ByResource<const char*> names = {"parameter slot",
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
                                                    "verdict",
                                                    "turn of reads",
                                                    "turn of writes"};
  return names[resource];
}

}  // namespace zero::detail
