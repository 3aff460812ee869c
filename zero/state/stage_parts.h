// The stages of a pipeline as all ranks know them: the whole model, and the part and layout of each
// stage. Made at start, equal on all ranks; empty without a pipeline. Numbers of parameters in
// checkpoints are those of the whole model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

struct StageParts {
  StageParts(const Model& declared, const Config& config, const AxisPlace& place);
  bool empty() const { return of_stage.empty(); }
  // Requires the plan of this rank's stage. Throws ConfigError for an optimizer whose states differ
  // by stage, and std::logic_error for lists of stages that would wait for each other.
  void lay_out(const EnginePlan& plan, const PipelineOptions& options);

  struct Part {
    Model model;
    Layout layout;
    std::vector<int> in_whole;    // per parameter, its number in the whole model
    std::vector<int> from_whole;  // per parameter of the whole model, its number here; or -1
  };
  // The place of the stage that has a parameter, the first if several do, and the parameter's
  // number there. -1 for a name that no unit declares.
  struct Home {
    int place = -1, param = -1;
  };
  Home home_of(std::string_view param) const;
  // Whether this rank's stage has the parameter.
  bool has(std::string_view param) const {
    const int number = whole.find(param);
    return number >= 0 && of_stage[own].from_whole[number] >= 0;
  }

  Model whole;
  std::optional<UpdateGroups> updates;  // of the whole model
  std::vector<Home> homes;              // per parameter of the whole model
  std::vector<Part> of_stage;
  int own = 0;  // the place of this rank's stage
};

}  // namespace zero::detail
