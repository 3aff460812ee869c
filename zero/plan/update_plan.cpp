#include "zero/plan/update_plan.h"

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

namespace {

// What rests in the file passes through a slot; new parameters of a GPU that are made in host
// memory are uploaded.
void emit_chunk(PlanEmitter& out, const PlanInputs& inputs, int number) {
  const OffloadPlan& offload = inputs.offload;
  const Chunk& chunk = inputs.chunks[number];
  if (offload.passes_file(chunk)) {
    if (!chunk.ahead)
      out.emit(Op::load, number);
    else if (offload.recalls(chunk))
      out.emit(Op::recall, number);
  }
  out.emit(chunk.on_host ? Op::update_on_host : Op::update, number);
  if (offload.uploads(chunk)) out.emit(Op::upload, number);
  if (offload.passes_file(chunk)) out.emit(Op::store, number);
  if (inputs.gather_after_update && chunk.last_of_unit) out.emit(Op::gather, chunk.flat_unit);
}

}  // namespace

// In forward order, so that the first units are ready for the next forward while others update.
// Gradients are not read before the ranks agree, as they may still be edited.
StepPlan make_update_plan(const PlanInputs& inputs) {
  PlanEmitter out(inputs, "update");
  out.emit(Op::agree, 0);
  if (inputs.tensor_norms) out.emit(Op::measure, 0);
  for (std::size_t c = 0; c < inputs.chunks.size(); ++c)
    emit_chunk(out, inputs, static_cast<int>(c));
  return out.take();
}

}  // namespace zero::detail
