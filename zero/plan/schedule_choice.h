// The schedule of a pipeline that "best" stands for. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "zero/config.h"
#include "zero/plan/model.h"

namespace zero::detail {

// Returns the options with a schedule in place of "best"; others are returned as they are. Steps of
// 1f1b and of interleaved with 2 to 8 chunks (or with those of the options, if above 1) are laid
// out for the units' work and transfers that take no time; of those within 2 % of the shortest, the
// one with the fewest chunks is chosen, since each further run is kept for more micro batches, and
// sends more. Chunks by which two runs of a stage would share a parameter are left out. gpipe and
// breadth_first take as long, and keep more. `micro_batches`: of a step of a data rank. Throws as
// first_units().
PipelineOptions resolve_schedule(const Model& whole, const PipelineOptions& options, int stages,
                                 std::int64_t micro_batches);

// Returns "interleaved, 2 runs each; the best: idle for 11 % of a step": schedule, chunks, reason.
std::string schedule_text(const PipelineOptions& options);

}  // namespace zero::detail
