// Pipeline parallelism: the units of a model are cut into stages of consecutive units, one for each
// rank of the grid's pipe axis, and a schedule lists the work of each stage for the micro batches
// of a step. Schedules are data: GPipe (Huang et al., arXiv 1811.06965) and 1F1B (PipeDream-Flush,
// Narayanan et al., arXiv 2006.09503). Pure functions.
//
// A transfer between neighbors blocks both until it is complete. So the lists of neighbors have
// their common transfers in the same order; find_schedule_fault() proves that no order blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

// Throws UsageError, which names the unit, for a model whose step cannot be a list of tasks.
void check_units(const Model& model);

// Throws ConfigError for what a stage of a pipeline cannot do in this version. Requires all of the
// plan but its inputs.
void check_pipeline(const Config& config, const EnginePlan& plan, const Model& model);

// Returns the first unit of each stage. `partition` is PipelineOptions::partition, DeepSpeed's
// partition_method: with all but "uniform" and a list, the largest stage has as little of the work,
// the parameters or the units named as possible. Throws ConfigError for another partition, and
// UsageError for fewer units than stages, and as check_units().
std::vector<int> first_units(const Model& whole, const std::string& partition, int stages);

// Returns the model of a stage; parameters, in the order of units, are those of these units, and
// copies of those that they borrow from other stages.
Model stage_of(const Model& whole, const std::vector<int>& first_units, int stage);

// The list of a stage for a step: forward and backward halves, receives before these and sends
// afterwards. `schedule`: "gpipe" or "1f1b".
std::vector<HalfPass> schedule_of(std::string_view schedule, const AxisPlace& place,
                                  const StageLinks& links, int micro_batches);

// Returns the largest number of micro batches between the begin of forward, with the receive, and
// the end of backward.
int in_flight_of(const std::vector<HalfPass>& schedule);

// Runs the lists of all stages, in which a transfer takes place when both neighbors have come to
// it. Returns the first fault, or "": a stage that waits for ever, a half without its input, and
// gradients in another order than that of micro batches.
std::string find_schedule_fault(const std::vector<std::vector<HalfPass>>& stages);

}  // namespace zero::detail
