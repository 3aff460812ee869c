#include "tools/planner/step_timeline.h"

#include <string>
#include <utility>

#include "tools/planner/planned_row.h"

namespace zero::planner {

using namespace detail;

namespace {

// How the page shows an instruction: the color, and the name in the legend.
struct Shown {
  const char* category;
  const char* kind;
};

Shown shown(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
      return {"compute", "forward and backward"};
    case Op::update:
    case Op::update_on_host:
      return {"optimizer", "optimizer"};
    case Op::gather:
    case Op::regather:
    case Op::spread:
      return {"all_gather", "gather"};
    case Op::reduce:
    case Op::reduce_late:
    case Op::accumulate:
      return {"reduce_scatter", "reduce"};
    case Op::agree:
    case Op::measure:
      return {"other", "norm and vote"};
    default:
      return {"offload_buffers", "copies of offload"};
  }
}

std::string label_of(const Instruction& instruction, const EnginePlan& plan,
                     const ModelShape& shape) {
  const std::string name = name_of(instruction.op);
  switch (target_of(instruction.op)) {
    case Target::unit:
      return name + " " + shape.spec.declared().units[instruction.target].name;
    case Target::flat_unit:
      return name + " " + plan.layout.flat_units[instruction.target].name;
    case Target::chunk:
      return name + " chunk " + std::to_string(instruction.target);
    default:
      return name;
  }
}

constexpr const char* stream_names[plan_stream_count] = {
    "compute", "communication", "from file", "to file", "host", "to GPU", "from GPU"};

}  // namespace

report::Timeline timeline_of(const Request& request, const PlanRow& row) {
  const PlannedRow planned(request, row);
  const SimulatedStep step =
      StepSimulation(planned.plan, request.shape, request.cluster, planned.pass).timeline();
  report::Timeline timeline{row.name, step.seconds, {}};
  for (int stream = 0; stream < plan_stream_count; ++stream) {
    report::Lane lane{stream_names[stream], {}};
    for (const SimulatedWork& work : step.work) {
      if (static_cast<int>(work.instruction->stream) != stream) continue;
      const auto [category, kind] = shown(work.instruction->op);
      lane.spans.push_back({category, kind,
                            label_of(*work.instruction, planned.plan, request.shape), work.begin,
                            work.end});
    }
    if (!lane.spans.empty()) timeline.lanes.push_back(std::move(lane));
  }
  return timeline;
}

}  // namespace zero::planner
