#include "zero/engine/bubble.h"

#include <cstdio>

namespace zero::detail {

double bubble_of(const PipelineShape& shape, const std::vector<StageTimes>& stages) {
  std::vector<RunTimes> times(shape.runs());
  for (int run = 0; run < shape.runs(); ++run)
    times[run] = stages[run % shape.ranks].runs[run / shape.ranks];
  const Timetable table = timetable_of(shape, times);
  return table.end * table.bubble();
}

std::string bubble_text(const PipelineShape& shape, const std::vector<StageTimes>& stages) {
  double step = 0, waits = 0;
  for (const StageTimes& stage : stages) {
    step += stage.step / static_cast<double>(stages.size());
    waits += stage.waits / static_cast<double>(stages.size());
  }
  if (step == 0) return "";
  const double planned = bubble_of(shape, stages);
  char text[200];
  std::snprintf(text, sizeof text,
                "bubble   stages wait for each other %.3f ms of a step, %.1f %%;\n"
                "         the schedule and these kernels make %.3f ms, %.1f %%\n",
                1e3 * waits, 100 * waits / step, 1e3 * planned, 100 * planned / step);
  return text;
}

}  // namespace zero::detail
