// Simulates the stages of a pipeline together: data rank 0 of each, with the lists of work that the
// engine's stages run. Votes and transfers begin when all their ranks have come to them.
#pragma once

#include <memory>
#include <vector>

#include "tools/planner/planned_row.h"
#include "tools/planner/step_simulation.h"

namespace zero::planner {

// The work of a step, stage by stage, and the plans that have its instructions.
struct SimulatedStages {
  std::vector<detail::StepPlan> plans;
  std::vector<SimulatedStep> steps;
};

class PipelineSimulation {
 public:
  // `row` must outlive this object.
  explicit PipelineSimulation(const PlannedRow& row);

  StepTimes run() const;
  // Returns the work of a step with times from its start; of a step with many micro batches, some.
  // Work that overlaps with adjacent steps is cut off.
  SimulatedStages timelines() const;

 private:
  struct Trace;

  // Simulates steps with this number of micro batches.
  Trace trace(int micro_batches, bool computes_alone) const;
  StepTimes times_of(int micro_batches, bool computes_alone) const;
  // The number of micro batches that is simulated, and up to which the time of a step grows with
  // each by the same.
  int simulated_micro_batches() const;

  const PlannedRow& row_;
  std::vector<std::unique_ptr<StepSimulation>> stages_;
};

}  // namespace zero::planner
