#include "tools/planner/step_timeline.h"

#include <string>
#include <utility>

#include "tools/planner/pipeline_simulation.h"
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
    case Op::add_uses:
      return {"reduce_scatter", "reduce"};
    case Op::agree:
    case Op::measure:
      return {"other", "norm and vote"};
    case Op::receive:
    case Op::send:
    case Op::receive_gradient:
    case Op::send_gradient:
      return {"broadcast", "between stages"};
    default:
      return {"offload_buffers", "copies of offload"};
  }
}

std::string label_of(const Instruction& instruction, const PlannedStage& stage) {
  const std::string name = name_of(instruction.op);
  switch (target_of(instruction.op)) {
    case Target::unit:
      return name + " " + stage.model.units[instruction.target].name;
    case Target::flat_unit:
      return name + " " + stage.plan.layout.flat_units[instruction.target].name;
    case Target::chunk:
      return name + " chunk " + std::to_string(instruction.target);
    case Target::boundary:
      return name + " of micro-batch " + std::to_string(instruction.micro_batch);
    default:
      return name;
  }
}

constexpr const char* stream_names[plan_stream_count] = {
    "compute", "communication", "from file", "to file", "host", "to GPU", "from GPU", "updates"};

// Adds the lanes of a rank, whose names begin with `prefix`.
void add_lanes(report::Timeline& timeline, const SimulatedStep& step, const PlannedStage& stage,
               const std::string& prefix) {
  for (int stream = 0; stream < plan_stream_count; ++stream) {
    report::Lane lane{prefix + stream_names[stream], {}};
    for (const SimulatedWork& work : step.work) {
      if (static_cast<int>(work.instruction->stream) != stream) continue;
      const auto [category, kind] = shown(work.instruction->op);
      lane.spans.push_back(
          {category, kind, label_of(*work.instruction, stage), work.begin, work.end});
    }
    if (!lane.spans.empty()) timeline.lanes.push_back(std::move(lane));
  }
}

}  // namespace

report::Timeline timeline_of(const Request& request, const PlanRow& row) {
  const PlannedRow planned(request, row);
  if (planned.stages.size() == 1) {
    const PlannedStage& whole = *planned.stages.front();
    const SimulatedStep step =
        StepSimulation(whole.plan, whole.work, planned.cluster, planned.pass).timeline();
    report::Timeline timeline{row.name, step.seconds, {}};
    add_lanes(timeline, step, whole, "");
    return timeline;
  }
  report::Timeline timeline{row.name, 0, {}};
  const SimulatedStages stages = PipelineSimulation(planned).timelines();
  timeline.seconds = stages.steps.front().seconds;
  for (std::size_t s = 0; s < stages.steps.size(); ++s)
    add_lanes(timeline, stages.steps[s], *planned.stages[s], "stage " + std::to_string(s) + " ");
  return timeline;
}

}  // namespace zero::planner
