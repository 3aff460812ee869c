// The bubble of a pipeline: the time in which its stages wait for each other, as measured, and as
// the schedule makes it with the measured kernels. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "zero/plan/pipeline_schedule.h"

namespace zero::detail {

// The means of a step over the ranks of a stage, in seconds.
struct StageTimes {
  double step = 0;
  double waits = 0;                 // for transfers between stages, and at the end of the step
  std::vector<RunTimes> runs = {};  // per run: kernels of a micro batch
};

// Returns the mean over stages of the time in which these wait if transfers take none, in seconds.
double bubble_of(const PipelineShape& shape, const std::vector<StageTimes>& stages);

// Returns the lines of a trace's summary.
std::string bubble_text(const PipelineShape& shape, const std::vector<StageTimes>& stages);

}  // namespace zero::detail
