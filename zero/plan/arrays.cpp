#include "zero/plan/arrays.h"

#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

std::int64_t shard_bytes(const EnginePlan& plan, const Segment& segment) {
  return plan.policy.shard(segment).count() * size_of(plan.policy.types(segment).dtype);
}

PlannedArrays shard_buffers(const EnginePlan& plan) {
  const OffloadPlan& offload = plan.inputs.offload;
  PlannedArrays buffers{MemoryCategory::offload_buffers, offload.shard_slots};
  for (const SegmentId& id : plan.layout.segments())
    if (const int slot = offload.shard_slot(id.flat_unit); slot >= 0)
      buffers.arrays.push_back(
          {id, Role::parameter_shard, shard_bytes(plan, plan.layout.segment(id)), slot});
  return buffers;
}

// Shards and second copies. Parameters gathered in a wire format differ from the shards, so these
// have separate memory: the next update may have to read them, and checkpoints contain them.
PlannedArrays kept_parameters(const EnginePlan& plan) {
  const StatePolicy& policy = plan.policy;
  PlannedArrays kept{MemoryCategory::parameters};
  for (const SegmentId& id : plan.layout.segments()) {
    const Segment& segment = plan.layout.segment(id);
    if ((policy.parameters_sharded || segment.encoded) &&
        plan.inputs.offload.shard_slot(id.flat_unit) < 0)
      kept.arrays.push_back({id, Role::parameter_shard, shard_bytes(plan, segment)});
  }
  for (const SegmentId& id : plan.layout.segments())
    if (plan.inputs.has_second_copy(id.flat_unit)) {
      const Segment& segment = plan.layout.segment(id);
      kept.arrays.push_back(
          {id, Role::second_copy,
           policy.second_copy(segment).count() * size_of(policy.types(segment).dtype)});
    }
  return kept;
}

PlannedArrays whole_parameters(const EnginePlan& plan) {
  const SlotAssignment& slots = plan.parameter_memory;
  PlannedArrays whole{
      plan.policy.parameters_sharded ? MemoryCategory::parameter_slots : MemoryCategory::parameters,
      slots.slots};
  for (const SegmentId& id : plan.layout.segments())
    if (const int slot = slots.slot_of[id.flat_unit]; slot >= 0) {
      const Segment& segment = plan.layout.segment(id);
      whole.arrays.push_back(
          {id, Role::parameter, segment.length * size_of(plan.policy.types(segment).dtype), slot});
    }
  return whole;
}

// Sums over ranks and micro steps.
PlannedArrays gradient_sums(const EnginePlan& plan) {
  const StatePolicy& policy = plan.policy;
  const OffloadPlan& offload = plan.inputs.offload;
  PlannedArrays sums{MemoryCategory::gradients};
  for (const SegmentId& id : plan.layout.segments()) {
    const Segment& segment = plan.layout.segment(id);
    if (!segment.trainable) continue;
    const auto add = [&](Role role, std::int64_t elements) {
      sums.arrays.push_back({id, role, elements * size_of(policy.types(segment).sum)});
    };
    if (policy.accumulator == Accumulator::shard)
      add(Role::gradient_shard, offload.gradients ? offload.resident_of(id, policy.updated(segment))
                                                  : policy.shard(segment).count());
    if (const std::int64_t elements = plan.routes.group_sums_elements(id); elements > 0)
      add(Role::group_sums, elements);
    if (policy.keeps_open_group) add(Role::open_group, policy.shard(segment).count());
    if (policy.accumulator == Accumulator::whole) add(Role::accumulated, segment.length);
  }
  return sums;
}

// The memory that backward writes, and the landing of shards that move to another home.
PlannedArrays gradients(const EnginePlan& plan) {
  const SlotAssignment& slots = plan.gradient_memory;
  PlannedArrays written{
      plan.policy.gradients_whole ? MemoryCategory::gradients : MemoryCategory::gradient_slots,
      slots.slots};
  for (const SegmentId& id : plan.layout.segments()) {
    const Segment& segment = plan.layout.segment(id);
    const int slot = slots.slot_of[id.flat_unit];
    if (slot < 0 || !segment.trainable) continue;
    const SegmentTypes types = plan.policy.types(segment);
    written.arrays.push_back({id, Role::gradient, segment.length * size_of(types.dtype), slot});
    if (plan.inputs.offload.gradients && types.summand != types.wire)
      written.arrays.push_back(
          {id, Role::landing, plan.policy.shard(segment).count() * size_of(types.wire), slot});
  }
  return written;
}

}  // namespace

std::vector<PlannedArrays> planned_arrays(const EnginePlan& plan) {
  return {shard_buffers(plan), kept_parameters(plan), whole_parameters(plan), gradient_sums(plan),
          gradients(plan)};
}

}  // namespace zero::detail
