// The plan of the optimizer step: ranks agree, then every chunk is updated, in forward order.
#include "zero/plan/step_plan.h"

namespace zero::detail {

namespace {

bool is_loaded(const PlanInputs& inputs, int number) {
  const Chunk& chunk = inputs.chunks[number];
  return inputs.offload.passes_slot(chunk) && !chunk.ahead;
}

// Whether the load of a chunk comes before the update of the chunk before. On the stream of copies
// it would otherwise wait behind an upload, and that for the host's update. The slot is free: it is
// not that of the chunk before.
bool loads_early(const PlanInputs& inputs, int number) {
  const OffloadPlan& offload = inputs.offload;
  return number > 0 && is_loaded(inputs, number) && offload.streams && offload.updates_on_host &&
         offload.pipeline_read && offload.pipeline_write &&
         inputs.chunks[number - 1].slot != inputs.chunks[number].slot;
}

}  // namespace

// Updates run in forward order, so that the first units are ready for the next forward pass while
// later units update. Gradients are read only after the ranks agree, because the program may edit
// gradients until then. State kept in the file, or in host memory for a GPU to update, passes
// through a slot; parameters of a GPU that are updated in host memory are uploaded.
StepPlan make_update_plan(const PlanInputs& inputs) {
  const OffloadPlan& offload = inputs.offload;
  StepPlan plan{"update", {}};
  const auto add = [&](Op op, int target) { emit(plan, inputs, op, target); };
  add(Op::agree, 0);
  if (inputs.measures_tensors) add(Op::measure, 0);
  for (int c = 0; c < std::ssize(inputs.chunks); ++c) {
    const Chunk& chunk = inputs.chunks[c];
    const bool passes_slot = offload.passes_slot(chunk);
    if (is_loaded(inputs, c) && !loads_early(inputs, c)) add(Op::load, c);
    if (c + 1 < std::ssize(inputs.chunks) && loads_early(inputs, c + 1)) add(Op::load, c + 1);
    if (passes_slot && chunk.ahead && offload.recalls(chunk)) add(Op::recall, c);
    add(chunk.on_host ? Op::update_on_host : Op::update, c);
    if (offload.uploads(chunk)) add(Op::upload, c);
    if (passes_slot) add(Op::store, c);
    if (inputs.gather_after_update && chunk.last_of_unit) add(Op::gather, chunk.flat_unit);
    if (inputs.spread_after_update && chunk.last_of_unit) add(Op::spread, chunk.flat_unit);
  }
  derive_order(plan);
  return plan;
}

}  // namespace zero::detail
