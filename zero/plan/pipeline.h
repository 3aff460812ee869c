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

// Returns the work of each unit; its parameters, if no unit declares work.
std::vector<std::int64_t> work_of_units(const Model& model);

// Returns the first unit of each run, `options.chunks` for each stage. `options.partition` is
// DeepSpeed's partition_method: with all but "uniform" and a list, the largest run has as little of
// the work, the parameters or the units named as possible. Throws ConfigError for another
// partition, and for chunks that do not go with the schedule, and UsageError for fewer units than
// runs, and as check_units().
std::vector<int> first_units(const Model& whole, const PipelineOptions& options, int stages);

// Returns a parameter that two runs of one stage use, or null. No stage can have it: its gradient
// is complete with the last use in a micro batch, and runs interleave micro batches.
const ParamDeclaration* shared_by_runs(const Model& whole, const std::vector<int>& first_units,
                                       int stages);

// Returns the model of a stage, which has every place.ranks-th run; parameters, in the order of
// units, are those of these units, and copies of those that they borrow from other stages. Throws
// ConfigError if shared_by_runs().
Model stage_of(const Model& whole, const std::vector<int>& first_units, const AxisPlace& place);

}  // namespace zero::detail
