// Pipeline parallelism: the units of a model are cut into runs of consecutive units, as many for
// each rank of the grid's pipe axis. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

// Throws UsageError, which names the unit, for a model whose step cannot be a list of tasks.
void check_units(const Model& model);

// Throws ConfigError for what a stage of a pipeline cannot do in this version. Requires all of the
// plan but its inputs.
void check_pipeline(const Config& config, const EnginePlan& plan, const Model& model);

// Returns the options with a schedule in place of "best"; others are returned as they are. Steps of
// 1f1b and of interleaved with 2 to 8 chunks (or with those of the options, if above 1) are laid
// out for the units' work and transfers that take no time; of those within 2 % of the shortest, the
// one with the fewest chunks is chosen, since each further run is kept for more micro batches, and
// sends more. gpipe and breadth_first take as long, and keep more. `micro_batches`: of a step of a
// data rank. Throws as first_units().
PipelineOptions resolve_schedule(const Model& whole, const PipelineOptions& options, int stages,
                                 std::int64_t micro_batches);

// Returns "interleaved, 2 runs each; the best: idle for 11 % of a step": schedule, chunks, reason.
std::string schedule_text(const PipelineOptions& options);

// Returns the first unit of each run, `options.chunks` for each stage. `options.partition` is
// DeepSpeed's partition_method: with all but "uniform" and a list, the largest run has as little of
// the work, the parameters or the units named as possible. Throws ConfigError for another
// partition, and for chunks that do not go with the schedule, and UsageError for fewer units than
// runs, and as check_units().
std::vector<int> first_units(const Model& whole, const PipelineOptions& options, int stages);

// Returns the model of a stage, which has every place.ranks-th run; parameters, in the order of
// units, are those of these units, and copies of those that they borrow from other stages.
Model stage_of(const Model& whole, const std::vector<int>& first_units, const AxisPlace& place);

}  // namespace zero::detail
