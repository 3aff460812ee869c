#include "zero/plan/step_plan.h"

#include <algorithm>

#include "zero/plan/micro_plan.h"
#include "zero/plan/update_plan.h"

namespace zero::detail {

const char* name_of(Op op) {
  switch (op) {
    case Op::forward:
      return "forward";
    case Op::backward:
      return "backward";
    case Op::agree:
      return "agree";
    case Op::measure:
      return "measure";
    case Op::update:
      return "update";
    case Op::gather:
      return "gather";
    case Op::reduce:
      return "reduce";
    case Op::accumulate:
      return "accumulate";
    case Op::fetch:
      return "fetch";
    case Op::load:
      return "load";
    case Op::recall:
      return "recall";
    case Op::store:
      return "store";
    case Op::spill:
      return "spill";
    case Op::download:
      return "download";
    case Op::update_on_host:
      return "update on the host";
    case Op::upload:
      return "upload";
    case Op::supply:
      return "supply";
  }
  return "?";
}

PlanStream stream_of(Op op) {
  switch (op) {
    case Op::gather:
    case Op::reduce:
    case Op::accumulate:
      return PlanStream::communication;
    case Op::fetch:
    case Op::load:
    case Op::recall:
      return PlanStream::inbound;
    case Op::store:
    case Op::spill:
      return PlanStream::outbound;
    case Op::download:
      return PlanStream::copies_out;
    case Op::upload:
    case Op::supply:
      return PlanStream::copies_in;
    case Op::update_on_host:
      return PlanStream::host;
    default:
      return PlanStream::compute;
  }
}

int flat_unit_of(const Instruction& instruction, const std::vector<Chunk>& chunks) {
  const Op op = instruction.op;
  const bool on_chunk = op == Op::update || op == Op::load || op == Op::recall || op == Op::store ||
                        op == Op::upload || stream_of(op) == PlanStream::host;
  return on_chunk ? chunks[instruction.target].flat_unit : instruction.target;
}

std::vector<int> backward_order(const Model& model, const Layout& layout) {
  int lowest = static_cast<int>(model.units.size());
  for (const FlatUnit& flat : layout.flat_units)
    if (flat.trainable_elements() > 0 && !flat.users.empty())
      lowest = std::min(lowest, flat.users.front());
  std::vector<int> order;
  for (int unit = static_cast<int>(model.units.size()) - 1; unit >= lowest; --unit)
    order.push_back(unit);
  return order;
}

StepPlans make_step_plans(const PlanInputs& inputs, bool sync_each) {
  StepPlans plans;
  std::optional<Op> early;
  if (inputs.accumulate_locally) early = Op::accumulate;
  if (sync_each) early = Op::reduce;
  plans.first = make_micro_plan(inputs, MicroPosition::first, early);
  plans.middle = make_micro_plan(inputs, MicroPosition::middle, early);
  plans.last = make_micro_plan(inputs, MicroPosition::last, Op::reduce);
  plans.only = make_micro_plan(inputs, MicroPosition::only, Op::reduce);
  plans.update = make_update_plan(inputs);
  plans.evaluation_first = make_evaluation_plan(inputs, true);
  plans.evaluation_next = make_evaluation_plan(inputs, false);
  return plans;
}

PlanTraffic traffic_of(const StepPlan& plan, const Layout& layout) {
  PlanTraffic traffic;
  for (const Instruction& instruction : plan.instructions) {
    const FlatUnit* flat = stream_of(instruction.op) == PlanStream::communication
                               ? &layout.flat_units[instruction.target]
                               : nullptr;
    if (instruction.op == Op::reduce) traffic.reduced += flat->trainable_elements();
    if (instruction.op == Op::gather) traffic.gathered += flat->elements();
  }
  return traffic;
}

}  // namespace zero::detail
