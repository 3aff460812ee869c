#include "zero/plan/update_plan.h"

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

namespace {

// Gradients are not read before the ranks agree, as they may still be edited.
class UpdateBuilder {
 public:
  explicit UpdateBuilder(const PlanInputs& inputs) : inputs_(inputs), out_(inputs, "update") {}

  // In forward order, so that the first units are ready for the next forward while others update.
  StepPlan updates() {
    out_.emit(Op::agree, 0);
    if (inputs_.tensor_norms) out_.emit(Op::measure, 0);
    for (std::size_t c = 0; c < inputs_.chunks.size(); ++c)
      emit_chunk(inputs_.chunks[c], static_cast<int>(c));
    return out_.take();
  }

 private:
  // What rests in the file passes through a slot; new parameters of a GPU that are made in host
  // memory are uploaded.
  void emit_chunk(const Chunk& chunk, int number) {
    const OffloadPlan& offload = inputs_.offload;
    if (offload.passes_file(chunk)) {
      if (!chunk.ahead)
        out_.emit(Op::load, number);
      else if (offload.recalls(chunk))
        out_.emit(Op::recall, number);
    }
    out_.emit(chunk.on_host ? Op::update_on_host : Op::update, number);
    if (offload.uploads(chunk)) out_.emit(Op::upload, number);
    if (offload.passes_file(chunk)) out_.emit(Op::store, number);
    if (inputs_.gather_after_update && chunk.last_of_unit) out_.emit(Op::gather, chunk.flat_unit);
  }

  const PlanInputs& inputs_;
  PlanEmitter out_;
};

}  // namespace

StepPlan make_update_plan(const PlanInputs& inputs) {
  return UpdateBuilder(inputs).updates();
}

}  // namespace zero::detail
