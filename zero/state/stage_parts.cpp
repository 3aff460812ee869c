#include "zero/state/stage_parts.h"

#include <stdexcept>
#include <string>

#include "zero/plan/pipeline.h"
#include "zero/plan/pipeline_schedule.h"

namespace zero::detail {

StageParts::StageParts(const Model& declared, const Config& config, const AxisPlace& place)
    : own(place.rank) {
  if (place.ranks == 1) return;
  whole = declared;
  updates.emplace(whole, config);
  homes.resize(whole.params.size());
  const std::vector<int> first = first_units(whole, config.pipeline, place.ranks);
  for (int at = 0; at < place.ranks; ++at) {
    Part& part = of_stage.emplace_back(Part{stage_of(whole, first, {at, place.ranks}), {}, {}, {}});
    part.from_whole.assign(whole.params.size(), -1);
    for (const ParamDeclaration& param : part.model.params) {
      const int number = whole.find(param.name);
      const auto here = static_cast<int>(part.in_whole.size());
      if (!param.elsewhere) homes[number] = {at, here};
      part.in_whole.push_back(number);
      part.from_whole[number] = here;
    }
  }
}

void StageParts::lay_out(const EnginePlan& plan, const PipelineOptions& options) {
  const Timetable timetable = timetable_of({options, plan.on.pipe.ranks, plan.batch.accumulation});
  std::vector<std::vector<HalfPass>> lists;
  for (Part& part : of_stage) {
    part.layout = plan.layout_of(part.model);
    lists.push_back(schedule_of(timetable, static_cast<int>(lists.size()), part.model));
  }
  if (const std::string fault = find_schedule_fault(lists); !fault.empty())
    throw std::logic_error("pipeline: " + fault);
  const bool trains = !plan.updates.groups().empty();
  if (trains && plan.updates.state_names() != updates->state_names())
    throw ConfigError("the optimizer keeps other states for the parameters of stage " +
                      std::to_string(own) +
                      " than for the whole model, which does not go with "
                      "pipeline.stages (RuntimeOptions::pipeline_stages): choose one rule for all "
                      "parameters");
}

StageParts::Home StageParts::home_of(std::string_view param) const {
  const int number = whole.find(param);
  return number < 0 ? Home() : homes[number];
}

}  // namespace zero::detail
